"""Tasks of ``aggregate`` at an owner in memory."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any
from unittest.mock import ANY

import pyarrow as pa

from changelog_state.codec.kinds import DATA, SCHEMA, TIMER
from changelog_state.store.base import next_prefix
from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.program import Program
from changelog_state.task.spec import BatchSpec
from changelog_state.testing.partition import MemoryPartition

__all__ = ["NOW_MS", "Owner"]

NOW_MS = 1_000_000


class Owner(MemoryPartition):
    """A partition in memory, and what was staged there last."""

    batch = -1

    def __init__(self) -> None:
        super().__init__()
        self.staged: list[tuple[bytes, bytes | None]] = []
        self.chunks: list[int] = []

    def put(self, records: dict[bytes, bytes]) -> None:
        """Commit these records, in a batch of their own."""
        self.batch += 1
        session = self.session(self.batch)
        keys = sorted(records)
        session.stage(keys, [records[key] for key in keys], [None] * len(keys))
        session.seal(["agg", "old", "zzz"])
        assert self.commit(self.batch, session.work)

    def records(self) -> dict[bytes, bytes]:
        return dict(self.store.scan(DATA, next_prefix(DATA)))

    def schema(self, fingerprint: bytes) -> bytes | None:
        return self.store.get(SCHEMA + fingerprint)

    def timers(self) -> int:
        return sum(1 for _ in self.store.scan(TIMER, next_prefix(TIMER)))

    def run(self, program: Program, batches: Sequence[pa.RecordBatch], **settings: Any) -> tuple[Any, Any]:
        """The next batch, and a replay of it. The output rows, and what the ticket tells."""
        self.batch += 1
        first, told = self._run_once(program, batches, settings)
        assert self._run_once(program, batches, settings) == (first, {**told, "stage_id": ANY})
        return first, told

    def _run_once(self, program: Program, batches: Sequence[pa.RecordBatch], settings: dict[str, Any]) -> Any:
        spec = BatchSpec(
            **{
                "batch": self.batch,
                "program": b"",
                "columns": (),
                "key_columns": ("k",),
                "key_types": ("string",),
                "batch_time_ms": NOW_MS,
                "largest_record_bytes": 10_000,
                **settings,
            }
        )
        session = self.session(self.batch)
        task = PartitionTask(spec, lambda: session, is_due=True)
        shipped = pickle.loads(pickle.dumps(program))
        output = list(shipped.run(task, task.accepted(iter(batches))))
        assert all(each.schema == spec.output_schema for each in output)
        told = task.finish()
        assert session.work is not None
        chunks = list(session.work.chunks())
        self.chunks = [len(chunk.keys) for chunk in chunks]
        self.staged = [each for chunk in chunks for each in zip(chunk.keys, chunk.values, strict=True)]
        assert self.commit(self.batch, session.work)
        return [tuple(row.values())[:-1] for each in output for row in each.to_pylist()], told
