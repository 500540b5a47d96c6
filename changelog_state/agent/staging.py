"""What tasks have handed in and no driver has committed yet: in memory, beyond a budget on disk."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.changelog.outputs import OutputChunk, Outputs
from changelog_state.codec.digest import PairDigest, RowDigest
from changelog_state.codec.headers import unpack_headers
from changelog_state.errors import InvalidInputError
from changelog_state.store.due_index import TIMED, index_keys
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
    """One task attempt's mutations, in ascending key order, and the records that go to a topic with them, in theirs.

    Unsealed work can never be committed.
    """

    def __init__(self, budget: StagingBudget) -> None:
        self.stage_id = uuid.uuid4().hex
        self.names: frozenset[str] = frozenset()
        self.schemas: dict[bytes, bytes] = {}
        """Those that the values were written with, beyond the built-in ones: JSON by fingerprint."""
        self.sealed = False
        self._mutations = _Batches(budget, f"staged-{self.stage_id}")
        self._digest = PairDigest()
        self._images = PairDigest()
        self._outputs = _Batches(budget, f"staged-{self.stage_id}-outputs")
        self._outputs_digest = RowDigest(3)
        self._output_topic = ""

    @property
    def records(self) -> int:
        return self._digest.count

    @property
    def outputs(self) -> int:
        """Records for a topic."""
        return self._outputs_digest.count

    @property
    def spilled(self) -> bool:
        return self._mutations.spilled

    def digest(self) -> bytes:
        """Of (key, new value); of the records for a topic too, if there are any."""
        mutations = self._digest.digest()
        if not self.outputs:
            return mutations
        return blake2b(mutations + self._outputs_digest.digest(), digest_size=len(mutations)).digest()

    def images_digest(self) -> bytes:
        """Of (key, previous value)."""
        return self._images.digest()

    def append(self, batch: pa.RecordBatch) -> None:
        self._refuse_if_sealed()
        if not batch.num_rows:
            return
        keys, values, previous = batch.columns
        try:
            self._digest.update_columns(keys, values)
            self._images.update_columns(keys, previous)
        except ValueError as error:
            raise InvalidInputError(f"staged {error}; this is a defect of the task's side, report it") from error
        self._mutations.append(batch)

    def append_outputs(self, topic: str, batch: pa.RecordBatch) -> None:
        """Records for a topic: keys, values, packed headers. All of one topic."""
        self._refuse_if_sealed()
        if topic != (self._output_topic or topic):
            raise InvalidInputError(
                f"records for topics {self._output_topic} and {topic} were staged together; this is a defect of the "
                "task's side, report it"
            )
        if batch.num_rows:
            self._output_topic = topic
            self._outputs_digest.update_columns(*batch.columns)
            self._outputs.append(batch)

    def _refuse_if_sealed(self) -> None:
        if self.sealed:
            raise InvalidInputError("work was staged behind its seal; this is a defect of the task's side, report it")

    def seal(self, names: frozenset[str]) -> None:
        self._mutations.close()
        self._outputs.close()
        self.names = names
        self.sealed = True

    def chunks(self) -> Iterator[Chunk]:
        return map(_chunk, self._mutations)

    def records_for_topic(self) -> Outputs | None:
        return Outputs(self._output_topic, map(_output_chunk, self._outputs)) if self.outputs else None

    def discard(self) -> None:
        self._mutations.discard()
        self._outputs.discard()


class _Batches:
    """Arrow batches in the order in which they came. What is on disk has come behind what is in memory."""

    def __init__(self, budget: StagingBudget, name: str) -> None:
        self._budget = budget
        self._name = name
        self._reserved = 0
        self._in_memory: list[pa.RecordBatch] = []
        self._spill_path: Path | None = None
        self._spill: pa.RecordBatchStreamWriter | None = None

    @property
    def spilled(self) -> bool:
        return self._spill_path is not None

    def append(self, batch: pa.RecordBatch) -> None:
        if not self.spilled and self._budget.reserve(batch.nbytes):
            self._reserved += batch.nbytes
            self._in_memory.append(batch)
            return
        if self._spill is None:
            self._budget.spill_dir.mkdir(parents=True, exist_ok=True)
            self._spill_path = self._budget.spill_dir / f"{self._name}.arrows"
            self._spill = pa.ipc.new_stream(str(self._spill_path), batch.schema)
        self._spill.write_batch(batch)

    def close(self) -> None:
        """Nothing more comes; from now on it can be read."""
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._in_memory
        if self._spill_path is not None:
            with pa.ipc.open_stream(pa.memory_map(str(self._spill_path))) as reader:
                yield from reader

    def discard(self) -> None:
        self.close()
        self._in_memory = []
        self._budget.give_back(self._reserved)
        self._reserved = 0
        if self._spill_path is not None:
            self._spill_path.unlink(missing_ok=True)
            self._spill_path = None


def _chunk(batch: pa.RecordBatch) -> Chunk:
    keys, values, previous = batch.columns
    return Chunk(
        keys.to_pylist(),
        values.to_pylist(),
        pack_columns(keys, previous),
        no_longer_due=_places_by_time(keys, previous),
        due=_places_by_time(keys, values),
    )


def _output_chunk(batch: pa.RecordBatch) -> OutputChunk:
    keys, values, headers = (column.to_pylist() for column in batch.columns)
    with_headers = batch.column(2).null_count < batch.num_rows
    return OutputChunk(
        keys,
        values,
        [None if packed is None else unpack_headers(packed) for packed in headers] if with_headers else None,
    )


def _places_by_time(keys: pa.Array, values: pa.Array) -> list[bytes]:
    """Where these records are in the index of what is due: most are not."""
    timed = None
    for header in TIMED:
        starts = pc.starts_with(values, header)
        timed = starts if timed is None else pc.or_(timed, starts)
    places = pc.indices_nonzero(pc.fill_null(timed, False))
    if not len(places):
        return []
    return list(index_keys(zip(keys.take(places).to_pylist(), values.take(places).to_pylist(), strict=True)))
