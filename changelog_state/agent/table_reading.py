"""What a global table has under many keys, out of the partitions in which they may be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from changelog_state.agent.key_reading import FoundValues, read_keys
from changelog_state.agent.table_partition import TablePartition
from changelog_state.changelog.record import Marker
from changelog_state.codec.kinds import DATA
from changelog_state.store.state_store import StateStore

__all__ = ["find_keys"]


def find_keys(
    partitions: Mapping[int, TablePartition],
    keys: list[bytes],
    places: list[int],
    *,
    raw_keys: bool,
    anywhere: bool,
) -> FoundValues:
    """Each is looked for in its place; ``anywhere``: what is not there, in all others.

    A producer that is not Java's may have put it elsewhere.
    """
    found = _Found(raw_keys)
    rows_at: dict[int, list[int]] = defaultdict(list)
    for row, place in enumerate(places):
        rows_at[place].append(row)
    for place, rows in rows_at.items():
        if place in partitions:
            found.look(partitions[place], keys, rows)
    if anywhere:
        for number, partition in partitions.items():
            rows = [row for row, place in enumerate(places) if place != number and row not in found.seen]
            found.look(partition, keys, rows)
    return found.values()


class _Found:
    """Answers of several partitions, as one."""

    def __init__(self, raw_keys: bool) -> None:
        self._read = _read_plain if raw_keys else _read_store
        self._names: dict[str, int] = {}
        self._rows: list[int] = []
        self._name_indexes: list[int] = []
        self._values: list[bytes] = []
        self.seen: set[int] = set()

    def look(self, partition: TablePartition, keys: list[bytes], rows: list[int]) -> None:
        if not rows:
            return
        wanted = [keys[row] for row in rows]
        found = partition.read(lambda state: self._read(state, wanted))
        indexes = [self._names.setdefault(name, len(self._names)) for name in found.names]
        there = [rows[row] for row in found.rows]
        self._rows += there
        self._name_indexes += [indexes[index] for index in found.name_indexes]
        self._values += found.values
        self.seen.update(there)

    def values(self) -> FoundValues:
        return FoundValues(list(self._names), self._rows, self._name_indexes, self._values)


def _read_plain(state: StateStore, keys: list[bytes]) -> FoundValues:
    found = state.read([DATA + key for key in keys])
    rows = [row for row, value in enumerate(found) if value is not None]
    return FoundValues([""], rows, [0] * len(rows), [value for value in found if value is not None])


def _read_store(state: StateStore, keys: list[bytes]) -> FoundValues:
    marker = None if state.marker is None else Marker.decode(state.marker)
    return read_keys(state, marker, keys, before=False)
