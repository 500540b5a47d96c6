"""What a timer's record holds: when, and by which clock. Its key has the user's key and the timer's name."""

from __future__ import annotations

from typing import Final, NamedTuple

from changelog_state.codec.longs import read_long, write_long
from changelog_state.errors import ValueEncodingError

__all__ = ["TIMER_HEADER", "TimerTime", "decode_timer", "encode_timer"]

TIMER_HEADER: Final = bytes.fromhex("c3019e8258f4a92c9430")
"""Of the schema in ``timed.py``."""
_CLOCKS: Final = (b"\x00", b"\x02")


class TimerTime(NamedTuple):
    at_ms: int
    by_event_time: bool


def encode_timer(time: TimerTime) -> bytes:
    return TIMER_HEADER + write_long(time.at_ms) + _CLOCKS[time.by_event_time]


def decode_timer(data: bytes) -> TimerTime:
    if not data.startswith(TIMER_HEADER):
        raise ValueEncodingError(
            f"a stored timer cannot be read: its {len(data)} bytes begin with {data[:16].hex()}; verify the store, "
            "and rebuild it if it is damaged"
        )
    at_ms, end = read_long(data, len(TIMER_HEADER))
    return TimerTime(at_ms, data[end] == 2)
