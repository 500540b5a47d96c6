"""A value with the time until which it is visible: an encoded value inside a record of its own.

Which clock the time is of, the record's schema tells: batch time, or the watermark. The schemas are in ``timed.py``;
here are only their headers, as restoring processes read many of these and should not have to import an Avro library.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from changelog_state.codec.longs import read_long, write_long

__all__ = ["EVENT_EXPIRING_HEADER", "EXPIRING_HEADER", "Expiring", "encode_expiring", "read_expiring"]

EXPIRING_HEADER: Final = bytes.fromhex("c30128c3b28c1fc4f7e0")
EVENT_EXPIRING_HEADER: Final = bytes.fromhex("c30150e25fa114a9861f")
_HEADERS: Final = (EXPIRING_HEADER, EVENT_EXPIRING_HEADER)
_HEADER_SIZE: Final = len(EXPIRING_HEADER)


class Expiring(NamedTuple):
    expires_ms: int
    by_event_time: bool
    value: bytes
    """An encoded value."""


def encode_expiring(value: bytes, expires_ms: int, *, by_event_time: bool = False) -> bytes:
    """By hand, as there may be one per value."""
    header = EVENT_EXPIRING_HEADER if by_event_time else EXPIRING_HEADER
    return b"".join((header, write_long(expires_ms), write_long(len(value)), value))


def read_expiring(data: bytes) -> Expiring | None:
    """None: a value that does not expire."""
    if not data.startswith(_HEADERS):
        return None
    expires_ms, at = read_long(data, _HEADER_SIZE)
    size, at = read_long(data, at)
    return Expiring(expires_ms, data.startswith(EVENT_EXPIRING_HEADER), data[at : at + size])
