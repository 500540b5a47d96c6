"""The stored values of many keys at once, in the form in which they are sent to a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from changelog_state.agent.messages import ANSWER_SCHEMA
from changelog_state.changelog.record import Marker
from changelog_state.codec.entries import split_suffix
from changelog_state.codec.kinds import DATA, TIMER
from changelog_state.store.base import next_prefix
from changelog_state.store.due_reading import DueRecord, due_records
from changelog_state.store.state_store import StateStore

__all__ = ["FoundValues", "read_due", "read_keys", "read_records", "scan_ranges"]


class FoundValues(NamedTuple):
    """Only what exists: value n belongs to key ``rows[n]`` of the request and to name ``names[name_indexes[n]]``."""

    names: list[str]
    rows: list[int]
    name_indexes: list[int]
    values: list[bytes]

    def to_arrow(self) -> pa.RecordBatch:
        columns = [
            pa.array(self.rows, pa.int32()),
            pa.array(self.name_indexes, pa.int32()),
            pa.array(self.values, pa.binary()),
            pa.nulls(len(self.rows), pa.binary()),
        ]
        return pa.record_batch(columns, schema=ANSWER_SCHEMA)


def read_keys(state: StateStore, marker: Marker | None, keys: list[bytes], *, before: bool) -> FoundValues:
    """All names of these keys; ``before``: as they were before the marker's batch."""
    names = marker.names if marker is not None else []
    if names is None:
        return _by_scan(state, keys, before)
    if not names:
        return FoundValues([], [], [], [])
    suffixes = [name.encode() for name in names]
    record_keys = [DATA + key + suffix for key in keys for suffix in suffixes]
    found = state.read_before(record_keys) if before else state.read(record_keys)
    width = len(names)
    places = [place for place, value in enumerate(found) if value is not None]
    values = [value for value in found if value is not None]
    if width == 1:
        return FoundValues(names, places, [0] * len(places), values)
    return FoundValues(names, [place // width for place in places], [place % width for place in places], values)


def _by_scan(state: StateStore, keys: list[bytes], before: bool) -> FoundValues:
    """There are so many names that asking for each would cost more than looking what a key has."""
    names: dict[str, int] = {}
    rows: list[int] = []
    name_indexes: list[int] = []
    values: list[bytes] = []
    for row, key in enumerate(keys):
        for name, value in _names_of(state, DATA + key, before):
            rows.append(row)
            name_indexes.append(names.setdefault(name, len(names)))
            values.append(value)
    return FoundValues(list(names), rows, name_indexes, values)


def _names_of(state: StateStore, prefix: bytes, before: bool) -> Iterator[tuple[str, bytes]]:
    """All names of a key. The entries of a list or map, of which there may be many, are jumped over."""
    start, end = prefix, next_prefix(prefix)
    while True:
        for record_key, value in state.scan_range(start, end, before=before):
            name, entry = split_suffix(record_key[len(prefix) :])
            if entry is not None:
                start = prefix + name.encode() + b"\1"
                break
            yield name, value
        else:
            return


def read_records(state: StateStore, record_keys: list[bytes], *, before: bool) -> pa.RecordBatch:
    """Records by their keys."""
    found = state.read_before(record_keys) if before else state.read(record_keys)
    rows = [row for row, value in enumerate(found) if value is not None]
    return _answer(rows, [value for value in found if value is not None], None)


def scan_ranges(
    state: StateStore, ranges: Iterable[tuple[bytes, bytes]], limit: int, *, before: bool
) -> pa.RecordBatch:
    """The first records of each range, at most ``limit`` of each."""
    rows: list[int] = []
    keys: list[bytes] = []
    values: list[bytes] = []
    for row, (start, end) in enumerate(ranges):
        for key, value in islice(state.scan_range(start, end, before=before), limit):
            rows.append(row)
            keys.append(key)
            values.append(value)
    return _answer(rows, values, keys)


def read_due(
    state: StateStore,
    now_ms: int,
    watermark_ms: int | None,
    most_timers: int,
    most_expired: int,
    *,
    before: bool,
) -> pa.RecordBatch:
    """Timers that are due and values that have expired, the earliest of each kind and clock."""
    found: list[DueRecord] = []
    for by_event_time, until_ms in ((False, now_ms), (True, watermark_ms)):
        for kind, most in ((TIMER, most_timers), (DATA, most_expired)):
            if most and until_ms is not None:
                found += due_records(state, kind, until_ms, most, by_event_time=by_event_time, before=before)
    return _answer([0] * len(found), [one.value for one in found], [one.record_key for one in found])


def _answer(rows: list[int], values: list[bytes], keys: list[bytes] | None) -> pa.RecordBatch:
    columns = [
        pa.array(rows, pa.int32()),
        pa.nulls(len(rows), pa.int32()),
        pa.array(values, pa.binary()),
        pa.nulls(len(rows), pa.binary()) if keys is None else pa.array(keys, pa.binary()),
    ]
    return pa.record_batch(columns, schema=ANSWER_SCHEMA)
