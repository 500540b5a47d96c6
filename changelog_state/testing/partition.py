"""A partition's owner in memory: what an agent does for tasks and drivers, over the in-memory store and changelog."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from changelog_state.agent.committing import commit_batch
from changelog_state.agent.key_reading import read_due, read_keys, read_records, scan_ranges
from changelog_state.agent.messages import REQUEST_SCHEMA
from changelog_state.agent.staging import StagedWork, StagingBudget
from changelog_state.changelog.memory import MemoryChangelog
from changelog_state.changelog.record import Marker, schema_records
from changelog_state.codec.kinds import CLAIM, MARKER
from changelog_state.config import StoreConfig
from changelog_state.requests import RequestHeader
from changelog_state.store.memory import MemoryStore
from changelog_state.store.meta import StoreMeta
from changelog_state.store.state_store import StateStore
from restore.replay import apply_transaction

__all__ = ["MemoryPartition", "MemorySession"]

_TOPIC_ID = "in-memory"
_QUERY = "test"
_CONFIG = StoreConfig("test", "test", "nowhere:9092", 1)


class MemoryPartition:
    def __init__(self) -> None:
        self.log = MemoryChangelog()
        self.store = MemoryStore()
        self._writer = self.log.writer()
        self._claim()
        self.state = self._opened()

    @property
    def marker(self) -> Marker | None:
        return None if self.state.marker is None else Marker.decode(self.state.marker)

    def has(self, batch: int) -> bool:
        marker = self.marker
        return marker is not None and marker.batch == batch

    def session(self, batch: int) -> MemorySession:
        return MemorySession(self.state, self.marker, before=self.has(batch))

    def commit(self, batch: int, work: StagedWork | None) -> bool:
        """As the owner does it on COMMIT. False: the batch was replayed, and its changes were others this time."""
        marker = self.marker
        if marker is not None and marker.batch == batch:
            return work is not None and marker.mutations == work.digest()
        if work is not None and (work.records or work.outputs):
            header = RequestHeader("test", "test", 0, 1, 0, _QUERY, batch, "token")
            commit_batch(self._writer, self.state, header, work, marker)
        return True

    def restart(self) -> None:
        """The agent was killed: what its store had not flushed is gone, and comes back from the changelog."""
        self.store.crash()
        self._reopen()

    def restore(self) -> None:
        """The disk was lost."""
        self.store = MemoryStore()
        self._reopen()

    def _reopen(self) -> None:
        self._writer = self.log.writer()
        self._claim()
        self.state = self._opened()

    def _claim(self) -> None:
        keys, values = map(list, zip(*schema_records(), strict=True))
        self._writer.write([(keys, values)], lambda: (CLAIM, b"claim"), purpose="claim")

    def _opened(self) -> StateStore:
        """The store with all that the changelog has, a transaction at a time, as a replica gets it."""
        state = StateStore(self.store)
        if state.meta is None:
            state.replay({}, StoreMeta(_TOPIC_ID, 0))
        assert state.meta is not None
        transaction: list[Any] = []
        for record in self.log.read(state.meta.position):
            transaction.append(record)
            if record.key() in (MARKER, CLAIM):
                apply_transaction(_CONFIG, state, transaction)
                transaction = []
        return state


class MemorySession:
    """What a task has of its partition: reads of what was before the batch, and a place to stage."""

    def __init__(self, state: StateStore, marker: Marker | None, *, before: bool) -> None:
        self._state = state
        self._marker = marker
        self._before = before
        self.work: StagedWork | None = None

    def get(self, keys: list[bytes]) -> list[dict[str, bytes]]:
        found: list[dict[str, bytes]] = [{} for _ in keys]
        names, rows, name_indexes, values = read_keys(self._state, self._marker, keys, before=self._before)
        for row, index, value in zip(rows, name_indexes, values, strict=True):
            found[row][names[index]] = value
        return found

    def read(self, record_keys: list[bytes]) -> list[bytes | None]:
        found: list[bytes | None] = [None] * len(record_keys)
        for row, value, _ in _records(read_records(self._state, record_keys, before=self._before)):
            found[row] = value
        return found

    def read_columns(self, record_keys: pa.Array) -> pa.Array:
        return pa.array(self.read(record_keys.to_pylist()), pa.binary())

    def scan_many(self, ranges: list[tuple[bytes, bytes]], limit: int) -> list[list[tuple[bytes, bytes]]]:
        found: list[list[tuple[bytes, bytes]]] = [[] for _ in ranges]
        for row, value, key in _records(scan_ranges(self._state, ranges, limit, before=self._before)):
            found[row].append((key, value))
        return found

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return self.scan_many([(start, end)], limit)[0]

    def due(
        self, now_ms: int, watermark_ms: int | None, most_timers: int, most_expired: int
    ) -> list[tuple[bytes, bytes]]:
        found = read_due(self._state, now_ms, watermark_ms, most_timers, most_expired, before=self._before)
        return [(key, value) for _, value, key in _records(found)]

    def stage(self, keys: list[bytes], values: list[bytes | None], previous: list[bytes | None]) -> None:
        self.stage_columns(*(pa.array(column, pa.binary()) for column in (keys, values, previous)))

    def stage_columns(self, keys: pa.Array, values: pa.Array, previous: pa.Array) -> None:
        self._staged().append(pa.record_batch([keys, values, previous], schema=REQUEST_SCHEMA))

    def output(self, topic: str, keys: pa.Array, values: pa.Array, headers: pa.Array) -> None:
        self._staged().append_outputs(topic, pa.record_batch([keys, values, headers], schema=REQUEST_SCHEMA))

    def seal(self, names: Iterable[str], schemas: Mapping[bytes, str] | None = None) -> dict[str, Any]:
        work = self._staged()
        work.schemas = {fingerprint: schema.encode() for fingerprint, schema in (schemas or {}).items()}
        work.seal(frozenset(names))
        return {
            "stage_id": work.stage_id,
            "digest": work.digest().hex(),
            "records": work.records,
            "outputs": work.outputs,
        }

    def close(self) -> None:
        """Nothing is held."""

    def _staged(self) -> StagedWork:
        if self.work is None:
            self.work = StagedWork(StagingBudget(1 << 40, Path(tempfile.gettempdir())))
        return self.work


def _records(answer: pa.RecordBatch) -> list[tuple[int, bytes, bytes]]:
    rows, _, values, keys = (column.to_pylist() for column in answer.columns)
    return list(zip(rows, values, keys, strict=True))
