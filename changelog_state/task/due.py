"""What is due in a task's partition, by key: it is met in the order of the keys, between the keys that have rows."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable

from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.kinds import TIMER
from changelog_state.codec.timers import TimerTime, decode_timer

__all__ = ["MOST_EXPIRED", "MOST_TIMERS", "DueWork"]

MOST_TIMERS = 50_000
"""That one batch calls in a partition, by each clock; the others come with the next ones."""
MOST_EXPIRED = 10_000
"""That one batch removes from a partition, by each clock."""


class DueWork:
    def __init__(self, records: Iterable[tuple[bytes, bytes]], codec: KeyCodec, most_timers: int) -> None:
        self.timers: dict[bytes, list[tuple[str, TimerTime]]] = defaultdict(list)
        self.expired: dict[bytes, list[tuple[bytes, bytes]]] = defaultdict(list)
        """What the record key ends with, and the value as it is stored."""
        for record_key, value in records:
            _, end = codec.decode(record_key, 1)
            key = record_key[1:end]
            if record_key[:1] == TIMER:
                self.timers[key].append((record_key[end:].decode(), decode_timer(value)))
            else:
                self.expired[key].append((record_key[end:], value))
        self._keys = sorted({*self.timers, *self.expired})
        self._done = 0
        clocks = Counter(time.by_event_time for timers in self.timers.values() for _, time in timers)
        self.is_cut = frozenset(clock for clock, count in clocks.items() if count >= most_timers)
        """Clocks by which more timers may be due, and later ones have to wait: True is event time."""

    def take_through(self, last: bytes | None) -> list[bytes]:
        """Keys that have something due, up to this one, that were not taken before; None: all that are left."""
        end = len(self._keys) if last is None else bisect_right(self._keys, last)
        taken, self._done = self._keys[self._done : end], end
        return taken
