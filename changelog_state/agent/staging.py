"""Mutations that tasks have handed in and no driver has committed yet: in memory, beyond a budget on disk."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from changelog_state.codec.digest import PairDigest
from changelog_state.errors import InvalidInputError
from changelog_state.store.images import pack_columns
from changelog_state.store.state_store import Chunk

__all__ = ["StagedWork", "StagingBudget"]


@dataclass
class StagingBudget:
    """Bytes that all partitions of an agent may hold in memory together."""

    limit_bytes: int
    spill_dir: Path
    used_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, size: int) -> bool:
        with self._lock:
            if self.used_bytes + size > self.limit_bytes:
                return False
            self.used_bytes += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.used_bytes -= size


class StagedWork:
    """One task attempt's mutations, in ascending key order. Unsealed work can never be committed."""

    def __init__(self, budget: StagingBudget) -> None:
        self.stage_id = uuid.uuid4().hex
        self.names: frozenset[str] = frozenset()
        self.sealed = False
        self._budget = budget
        self._reserved = 0
        self._in_memory: list[pa.RecordBatch] = []
        self._spill_path: Path | None = None
        self._spill: pa.RecordBatchStreamWriter | None = None
        self._digest = PairDigest()
        self._images = PairDigest()

    @property
    def records(self) -> int:
        return self._digest.count

    @property
    def spilled(self) -> bool:
        return self._spill_path is not None

    def digest(self) -> bytes:
        """Of (key, new value)."""
        return self._digest.digest()

    def images_digest(self) -> bytes:
        """Of (key, previous value)."""
        return self._images.digest()

    def append(self, batch: pa.RecordBatch) -> None:
        if self.sealed:
            raise InvalidInputError("work was staged behind its seal; this is a defect of the task's side, report it")
        if not batch.num_rows:
            return
        keys, values, previous = batch.columns
        try:
            self._digest.update_columns(keys, values)
            self._images.update_columns(keys, previous)
        except ValueError as error:
            raise InvalidInputError(f"staged {error}; this is a defect of the task's side, report it") from error
        if self._spill is None and self._budget.reserve(batch.nbytes):
            self._reserved += batch.nbytes
            self._in_memory.append(batch)
            return
        if self._spill is None:
            self._budget.spill_dir.mkdir(parents=True, exist_ok=True)
            self._spill_path = self._budget.spill_dir / f"staged-{self.stage_id}.arrows"
            self._spill = pa.ipc.new_stream(str(self._spill_path), batch.schema)
        self._spill.write_batch(batch)

    def seal(self, names: frozenset[str]) -> None:
        if self._spill is not None:
            self._spill.close()
        self.names = names
        self.sealed = True

    def chunks(self) -> Iterator[Chunk]:
        for batch in self._in_memory:
            yield _chunk(batch)
        if self._spill_path is not None:
            with pa.ipc.open_stream(pa.memory_map(str(self._spill_path))) as reader:
                for batch in reader:
                    yield _chunk(batch)

    def discard(self) -> None:
        self._in_memory = []
        self._budget.give_back(self._reserved)
        self._reserved = 0
        if self._spill is not None and not self.sealed:
            self._spill.close()
        if self._spill_path is not None:
            self._spill_path.unlink(missing_ok=True)
            self._spill_path = None


def _chunk(batch: pa.RecordBatch) -> Chunk:
    keys, values, previous = batch.columns
    return Chunk(keys.to_pylist(), values.to_pylist(), pack_columns(keys, previous))
