"""A value with the time until which it is visible: an encoded value inside a record of its own.

Which clock the time is of, the record's schema tells: batch time, or the watermark. The schemas are in ``timed.py``;
here are only their headers, as restoring processes read many of these and should not have to import an Avro library.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from changelog_state.codec.longs import read_long, write_long

__all__ = [
    "EVENT_EXPIRING_HEADER",
    "EXPIRING_HEADER",
    "FOR_EVER_MS",
    "REFRESHED_HEADER",
    "Expiring",
    "encode_expiring",
    "read_expiring",
]

EXPIRING_HEADER: Final = bytes.fromhex("c30128c3b28c1fc4f7e0")
EVENT_EXPIRING_HEADER: Final = bytes.fromhex("c30150e25fa114a9861f")
REFRESHED_HEADER: Final = bytes.fromhex("c3013a4b7c788cb2a6c9")
FOR_EVER_MS: Final = 253_402_300_799_999
"""The last millisecond that a datetime can tell."""
_HEADERS: Final = (EXPIRING_HEADER, EVENT_EXPIRING_HEADER, REFRESHED_HEADER)
_CLOCKS: Final = (b"\x00", b"\x02")
_HEADER_SIZE: Final = len(EXPIRING_HEADER)


class Expiring(NamedTuple):
    expires_ms: int
    by_event_time: bool
    value: bytes
    """An encoded value."""
    lives_ms: int | None = None
    """How long it lives from now on whenever it is read; None: reading it changes nothing."""


def encode_expiring(
    value: bytes, expires_ms: int, *, by_event_time: bool = False, lives_ms: int | None = None
) -> bytes:
    """By hand, as there may be one per value."""
    if lives_ms is not None:
        times = (write_long(expires_ms), write_long(lives_ms), _CLOCKS[by_event_time])
        return b"".join((REFRESHED_HEADER, *times, write_long(len(value)), value))
    header = EVENT_EXPIRING_HEADER if by_event_time else EXPIRING_HEADER
    return b"".join((header, write_long(expires_ms), write_long(len(value)), value))


def read_expiring(data: bytes) -> Expiring | None:
    """None: a value that does not expire."""
    if not data.startswith(_HEADERS):
        return None
    expires_ms, at = read_long(data, _HEADER_SIZE)
    by_event_time, lives_ms = data.startswith(EVENT_EXPIRING_HEADER), None
    if data.startswith(REFRESHED_HEADER):
        lives_ms, at = read_long(data, at)
        by_event_time, at = data[at] == 2, at + 1
    size, at = read_long(data, at)
    return Expiring(expires_ms, by_event_time, data[at : at + size], lives_ms)
