"""The stored values of many keys at once, in the form in which they are sent to a task."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from changelog_state.agent.messages import ANSWER_SCHEMA
from changelog_state.changelog.record import Marker
from changelog_state.codec.kinds import DATA
from changelog_state.store.state_store import StateStore

__all__ = ["FoundValues", "read_keys"]


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
        prefix = DATA + key
        for record_key, value in state.scan_prefix(prefix, before=before):
            rows.append(row)
            name_indexes.append(names.setdefault(record_key[len(prefix) :].decode(), len(names)))
            values.append(value)
    return FoundValues(list(names), rows, name_indexes, values)
