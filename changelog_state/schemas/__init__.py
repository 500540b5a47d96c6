"""Declared types of state values: their Avro schemas, fast encoding, and what happens when they change."""
