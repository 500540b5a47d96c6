"""Bytes on disk and on the wire: keys, values, and which partition a key belongs to."""
