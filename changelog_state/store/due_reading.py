"""What is due in a partition, now or, for a replay, before its last batch: always the same for the same state."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from changelog_state.codec.kinds import DATA, TIMER
from changelog_state.store.due_index import (
    CLOCKS,
    EVENT,
    PROCESSING,
    due_range,
    index_key,
    parse_index_key,
)
from changelog_state.store.state_store import StateStore

__all__ = ["DueRecord", "due_records", "next_due"]

_CHUNK = 1_000


@dataclass(frozen=True)
class DueRecord:
    time_ms: int
    record_key: bytes
    value: bytes
    """As it is stored."""


def due_records(
    state: StateStore, kind: bytes, until_ms: int, limit: int, *, by_event_time: bool, before: bool
) -> list[DueRecord]:
    """The first ``limit`` records of this kind whose time has come; ``before``: before the marker's batch.

    In order of time, then of keys.
    """
    clock = EVENT if by_event_time else PROCESSING
    entries = state.due_index.until(kind, clock, until_ms)
    if before:
        start, end = due_range(kind, clock, until_ms)
        entries = heapq.merge(entries, sorted(key for key in _replaced(state, kind) if start <= key < end))
    found: list[DueRecord] = []
    stale: list[bytes] = []
    last = b""
    while chunk := list(islice(entries, _CHUNK)):
        unique = [key for key, previous in zip(chunk, [last, *chunk], strict=False) if key != previous]
        last = chunk[-1]
        parsed = [parse_index_key(key) for key in unique]
        wanted = [entry.record_key for entry in parsed]
        values = state.read_before(wanted) if before else state.read(wanted)
        for key, entry, value in zip(unique, parsed, values, strict=True):
            if value is None or index_key(entry.record_key, value) != key:
                stale.append(key)
            elif len(found) == limit:
                return found
            else:
                found.append(DueRecord(entry.time_ms, entry.record_key, value))
    if stale and not before:
        _take_away(state, stale)
    return found


def next_due(state: StateStore) -> dict[str, int | None]:
    """By clock, when the next timer or value may be due. Never too late; too early if something was left behind."""
    soonest: dict[str, int | None] = {}
    for clock, name in zip(CLOCKS, ("processing", "event"), strict=True):
        first = [state.due_index.first(kind, clock) for kind in (DATA, TIMER)]
        soonest[name] = min((parse_index_key(key).time_ms for key in first if key is not None), default=None)
    return soonest


def _replaced(state: StateStore, kind: bytes) -> Iterator[bytes]:
    """Where the records that the last batch has changed were before it."""
    for keys, previous in state.images():
        for key, value in zip(keys, previous, strict=True):
            if value is not None and key[:1] == kind:
                found = index_key(key, value)
                if found is not None:
                    yield found


def _take_away(state: StateStore, stale: list[bytes]) -> None:
    batch = state.store.batch()
    for key in stale:
        batch.delete(key)
    state.store.write(batch)
