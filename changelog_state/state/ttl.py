"""Values that expire.

Expiry is a filter on the time of the reader: inside a batch, batch time or the watermark before it (the same when it
is replayed); outside, the clock, or the last watermark. Their tombstones follow, some with every batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from changelog_state.codec.avro import decode_value
from changelog_state.codec.expiring import read_expiring
from changelog_state.durations import Duration, duration_ms
from changelog_state.errors import ConfigurationError

__all__ = ["ABSENT", "Clock", "Ttl", "decode_visible", "ttl_of", "visible"]

ABSENT: Final = object()
Clock = Literal["processing", "event"]


@dataclass(frozen=True)
class Ttl:
    """How long values live.

    ``clock``: from batch time on, until batch time is later ("processing"); or from the latest event time of the
    key's rows on, until the watermark is later ("event").
    ``refresh``: begun anew when a value is written ("write"), or also when it is read ("read").
    """

    duration: Duration
    clock: Clock = "processing"
    refresh: Literal["write", "read"] = "write"
    milliseconds: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "milliseconds", duration_ms(self.duration, "ttl"))
        if self.clock not in ("processing", "event"):
            raise ConfigurationError(f"clock of a ttl is {self.clock!r}; use 'processing' or 'event'")
        if self.refresh not in ("write", "read"):
            raise ConfigurationError(f"refresh of a ttl is {self.refresh!r}; use 'write' or 'read'")

    @property
    def by_event_time(self) -> bool:
        return self.clock == "event"

    @property
    def on_read(self) -> bool:
        return self.refresh == "read"


def ttl_of(given: Duration | Ttl | None) -> Ttl | None:
    return given if given is None or isinstance(given, Ttl) else Ttl(given)


def visible(data: bytes, now_ms: int, watermark_ms: int | None = None) -> bytes | None:
    """The encoded value without its time, or None if that is over."""
    expiring = read_expiring(data)
    if expiring is None:
        return data
    now = watermark_ms if expiring.by_event_time else now_ms
    return expiring.value if now is None or expiring.expires_ms > now else None


def decode_visible(data: bytes | None, now_ms: int, watermark_ms: int | None = None) -> Any:
    """The value, or ``ABSENT`` if there is none any more."""
    value = None if data is None else visible(data, now_ms, watermark_ms)
    return ABSENT if value is None else decode_value(value)
