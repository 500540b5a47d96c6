"""When what is due: timers and values that expire, by time. Local, and derived from the records themselves.

    x + d or t + clock + time + rest of the record's key

The records decide: an entry counts only if its record still says the same time. So an entry may be left behind, as
by a restore, which meets each record's changes in pieces; whoever meets one in vain takes it away. But no record
with a time is ever without its entry: both are in the same write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from changelog_state.codec.expiring import EVENT_EXPIRING_HEADER, EXPIRING_HEADER, REFRESHED_HEADER, read_expiring
from changelog_state.codec.kinds import DATA, EXPIRY, TIMER
from changelog_state.codec.timers import TIMER_HEADER, decode_timer
from changelog_state.store.base import Store

__all__ = ["CLOCKS", "TIMED", "DueIndex", "IndexEntry", "due_range", "index_key", "index_keys", "parse_index_key"]

PROCESSING: Final = b"p"
EVENT: Final = b"e"
CLOCKS: Final = (PROCESSING, EVENT)
TIMED: Final = (EXPIRING_HEADER, EVENT_EXPIRING_HEADER, REFRESHED_HEADER, TIMER_HEADER)
"""What values that have a time begin with."""
_SIGN: Final = 1 << 63
_LATEST: Final = (1 << 63) - 1
_PREFIX_SIZE: Final = 3


class IndexEntry(NamedTuple):
    """Sorts by time, then by key."""

    time_ms: int
    record_key: bytes


def index_key(record_key: bytes, value: bytes) -> bytes | None:
    """Where a record is in the index; None: it has no time."""
    kind = record_key[:1]
    if kind == DATA:
        expiring = read_expiring(value)
        if expiring is None:
            return None
        time_ms, by_event_time = expiring.expires_ms, expiring.by_event_time
    elif kind == TIMER:
        time_ms, by_event_time = decode_timer(value)
    else:
        return None
    return b"".join((EXPIRY, kind, EVENT if by_event_time else PROCESSING, _time(time_ms), record_key[1:]))


def index_keys(records: Iterable[tuple[bytes, bytes | None]]) -> Iterator[bytes]:
    for key, value in records:
        if value is not None and value.startswith(TIMED):
            found = index_key(key, value)
            if found is not None:
                yield found


def due_range(kind: bytes, clock: bytes, until_ms: int | None = None) -> tuple[bytes, bytes]:
    """Start and end of the entries up to a time, which is included; None: of all."""
    prefix = EXPIRY + kind + clock
    if until_ms is None or until_ms >= _LATEST:
        return prefix, prefix[:-1] + bytes([clock[0] + 1])
    return prefix, prefix + _time(until_ms + 1)


class DueIndex:
    """The entries that a store has, in order; it remembers where they begin.

    What was due is deleted at the front of the index, and whoever looks for its first entry steps over all that was
    deleted there, one by one, until the store has merged its files: half a second after two million changes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begins: dict[bytes, bytes] = {}
        """By kind and clock: nothing is before this key. Where nothing is known, nothing is said."""

    def added(self, keys: Iterable[bytes]) -> None:
        """IMPORTANT: to be told of every entry that is written, before it is."""
        begins = self._begins
        for key in keys if begins else ():
            begin = begins.get(key[:_PREFIX_SIZE])
            if begin is not None and key < begin:
                begins[key[:_PREFIX_SIZE]] = key

    def until(self, kind: bytes, clock: bytes, until_ms: int) -> Iterator[bytes]:
        """All entries up to this time, which is included."""
        start, end = due_range(kind, clock, until_ms)
        start = self._begins.get(start[:_PREFIX_SIZE], start)
        return self._store.scan_keys(start, end) if start < end else iter(())

    def first(self, kind: bytes, clock: bytes) -> bytes | None:
        start, end = due_range(kind, clock)
        found = next(self._store.scan_keys(self._begins.get(start, start), end), None)
        self._begins[start] = end if found is None else found
        return found


def parse_index_key(key: bytes) -> IndexEntry:
    time_ms = int.from_bytes(key[_PREFIX_SIZE : _PREFIX_SIZE + 8], "big") - _SIGN
    return IndexEntry(time_ms, key[1:2] + key[_PREFIX_SIZE + 8 :])


def _time(time_ms: int) -> bytes:
    return (time_ms + _SIGN).to_bytes(8, "big")
