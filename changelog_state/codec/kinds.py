"""The first byte of every record key: what kind of record it is."""

from __future__ import annotations

from typing import Final

__all__ = ["CLAIM", "DATA", "EXPIRY", "IMAGE", "MARKER", "META", "SCHEMA", "TIMER"]

DATA: Final = b"d"
TIMER: Final = b"t"
SCHEMA: Final = b"s"
MARKER: Final = b"m"
CLAIM: Final = b"c"
IMAGE: Final = b"b"
EXPIRY: Final = b"x"
META: Final = b"p"
