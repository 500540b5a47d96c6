"""The schemas of what has a time: values that expire, and timers. They travel in every changelog."""

from __future__ import annotations

from typing import Final

from changelog_state.codec.avro import SingleObjectCodec
from changelog_state.codec.expiring import EVENT_EXPIRING_HEADER, EXPIRING_HEADER, REFRESHED_HEADER
from changelog_state.codec.timers import TIMER_HEADER

__all__ = ["EVENT_EXPIRING_CODEC", "EXPIRING_CODEC", "REFRESHED_CODEC", "TIMER_CODEC"]

_CLOCK: Final = {"type": "enum", "name": "changelog_state.Clock", "symbols": ["processing", "event"]}


def _expiring(name: str) -> SingleObjectCodec:
    return SingleObjectCodec(
        {
            "type": "record",
            "name": name,
            "fields": [{"name": "expires_ms", "type": "long"}, {"name": "value", "type": "bytes"}],
        }
    )


EXPIRING_CODEC: Final = _expiring("changelog_state.Expiring")
EVENT_EXPIRING_CODEC: Final = _expiring("changelog_state.EventExpiring")
REFRESHED_CODEC: Final = SingleObjectCodec(
    {
        "type": "record",
        "name": "changelog_state.Refreshed",
        "fields": [
            {"name": "expires_ms", "type": "long"},
            {"name": "lives_ms", "type": "long"},
            {"name": "clock", "type": _CLOCK},
            {"name": "value", "type": "bytes"},
        ],
    }
)
TIMER_CODEC: Final = SingleObjectCodec(
    {
        "type": "record",
        "name": "changelog_state.Timer",
        "fields": [{"name": "at_ms", "type": "long"}, {"name": "clock", "type": _CLOCK}],
    }
)
assert (EXPIRING_CODEC.header, EVENT_EXPIRING_CODEC.header, REFRESHED_CODEC.header, TIMER_CODEC.header) == (
    EXPIRING_HEADER,
    EVENT_EXPIRING_HEADER,
    REFRESHED_HEADER,
    TIMER_HEADER,
)
