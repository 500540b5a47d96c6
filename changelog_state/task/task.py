"""One Spark task: one state partition of one batch.

Every execution is a pure function of the state before the batch and the task's rows. It stages; it never commits:
when Spark cancels a task its input simply ends, so a task cannot know whether it has seen everything.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from changelog_state.agent.transport import best_address
from changelog_state.codec.digest import EMPTY_DIGEST
from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.kinds import DATA
from changelog_state.errors import (
    ChangelogStateError,
    FunctionError,
    InvalidKeyError,
    PartitioningError,
    ValueEncodingError,
)
from changelog_state.faults import fault_point
from changelog_state.state.handle import State
from changelog_state.tables.context import open_tables
from changelog_state.task.grouping import grouped
from changelog_state.task.output import OutputRows
from changelog_state.task.session import Session
from changelog_state.task.spec import PARTITION_COLUMN, TaskSpec
from changelog_state.task.worker_tuning import tune_worker
from restore.coordinator import Ticket

__all__ = ["run_task"]

_STAGE_RECORDS = 5_000
_STAGE_BYTES = 8 * 1024 * 1024


def run_task(spec: TaskSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """
    1. Group the rows by key; check that all of them belong to this partition.
    2. Per Arrow batch: read the keys' state in one request, run the function, stage what it changed.
    3. Seal the stage; emit the ticket.
    """
    tune_worker()
    context = TaskContext.get()
    assert context is not None
    spark_partition = context.partitionId()
    output = OutputRows(spec.output_schema)
    work = _TaskWork(spec, spark_partition)
    try:
        with open_tables(spec.tables, work.owner, spec.batch_time_ms):
            for keys, rows in grouped(work.checked(batches), spec.key_columns):
                for produced in work.process(keys, rows):
                    yield output.to_arrow(produced)
        ticket = work.finish(context.attemptNumber())
    finally:
        work.close()
    fault_point("task.after_stage")
    if ticket is not None:
        yield output.ticket(json.dumps(asdict(ticket)).encode())


class _TaskWork:
    def __init__(self, spec: TaskSpec, spark_partition: int) -> None:
        self._spec = spec
        self._spark_partition = spark_partition
        mapping = spec.partition_of_task
        self._partition = spark_partition if mapping is None else mapping.get(spark_partition)
        self._codec = KeyCodec(spec.key_types)
        self._function = _unpickled(spec.function)
        self._session: Session | None = None
        self._names: dict[str, bytes] = {}
        self._skip = self._partition in spec.skipped

    def checked(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Only rows of this task's own partition, without the column that proves it."""
        for batch in batches:
            if not batch.num_rows:
                continue
            batch = batch.rename_columns(list(self._spec.columns))
            found = pc.min_max(batch.column(PARTITION_COLUMN)).as_py()
            proven = found["min"] == found["max"] == self._partition
            if not proven and (found["min"] is not None or self._spec.partition_of_task is None):
                raise PartitioningError(
                    f"Spark partition {self._spark_partition} holds rows of partitions {found['min']} to "
                    f"{found['max']}, expected only {self._partition}; nothing was committed. "
                    "Report this together with df.explain()"
                )
            for column in self._spec.key_columns:
                if batch.column(column).null_count:
                    raise InvalidKeyError(
                        f"key column {column!r} is null in {batch.column(column).null_count} rows of batch "
                        f"{self._batch}; filter them out, or give them a key, before apply()"
                    )
            if not self._skip:
                yield batch.drop_columns([PARTITION_COLUMN])

    def process(self, keys: list[Any], rows: list[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
        """Run the function over complete keys; yields output rows in lists."""
        session = self._opened()
        columns = [keys] if len(self._codec.types) == 1 else [list(column) for column in zip(*keys, strict=True)]
        encoded = self._codec.encode_columns(columns)
        function, now_ms, suffixes = self._function, self._spec.batch_time_ms, self._names
        staged = _Stage(session, self._spec.largest_record_bytes)
        produced: list[dict[str, Any]] = []
        for key, encoded_key, key_rows, stored in zip(keys, encoded, rows, session.get(encoded), strict=True):
            state = State(stored, now_ms)
            try:
                result = function(key, key_rows, state)
                if result is not None:
                    produced.extend(result)
                for name, value, previous in state.changed():
                    suffix = suffixes.get(name)
                    if suffix is None:
                        suffix = suffixes[name] = name.encode()
                    staged.add(DATA + encoded_key + suffix, value, previous)
            except Exception as error:
                raise self._function_failed(key, error) from error
        staged.send()
        if produced:
            yield produced

    def finish(self, attempt: int) -> Ticket | None:
        """Seal what was staged. A task of a partition without rows has nothing to say to the owner."""
        if self._partition is None:
            return None
        if self._session is None:
            return Ticket(self._partition, self._spark_partition, attempt, None, EMPTY_DIGEST.hex(), 0)
        fault_point("task.before_stage")
        sealed = self._session.seal(self._names)
        return Ticket(
            self._partition,
            self._spark_partition,
            attempt,
            sealed["stage_id"],
            sealed["digest"],
            sealed["records"],
        )

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    @property
    def _batch(self) -> int:
        return next(iter(self._spec.headers.values())).batch

    @property
    def owner(self) -> tuple[str, str | None] | None:
        """Where the owner of this task's partition is."""
        owner = None if self._partition is None else self._spec.owners[self._partition]
        return None if owner is None else (owner.address, owner.socket)

    def _opened(self) -> Session:
        if self._session is None:
            assert self._partition is not None
            owner = self._spec.owners[self._partition]
            address = best_address(owner.address, owner.socket or "")
            self._session = Session(address, self._spec.headers[self._partition])
        return self._session

    def _function_failed(self, key: Any, error: Exception) -> ChangelogStateError:
        where = f"for key {key!r} in batch {self._batch}"
        if isinstance(error, ChangelogStateError):
            return type(error)(f"{error} ({where})")
        if isinstance(error, TypeError) and "is not iterable" in str(error):
            return FunctionError(f"the function returned something that is not rows, {where}: {error}; yield dicts")
        return FunctionError(
            f"the function raised {type(error).__name__} {where}: {error}; nothing of this batch was committed"
        )


class _Stage:
    """Changes on their way to the owner, in chunks of bounded size."""

    __slots__ = ("_bytes", "_keys", "_largest", "_previous", "_session", "_values")

    def __init__(self, session: Session, largest_record_bytes: int) -> None:
        self._session = session
        self._largest = largest_record_bytes
        self._keys: list[bytes] = []
        self._values: list[bytes | None] = []
        self._previous: list[bytes | None] = []
        self._bytes = 0

    def add(self, record_key: bytes, value: bytes | None, previous: bytes | None) -> None:
        self._keys.append(record_key)
        self._values.append(value)
        self._previous.append(previous)
        size = len(record_key) + len(value or b"")
        if size > self._largest:
            raise ValueEncodingError(
                f"a value takes {size} bytes, the changelog takes records up to {self._largest}; store less under "
                "one name, or raise the topic's max.message.bytes and give it in topic="
            )
        self._bytes += size + len(previous or b"")
        if self._bytes >= _STAGE_BYTES or len(self._keys) >= _STAGE_RECORDS:
            self.send()

    def send(self) -> None:
        if self._keys:
            self._session.stage(self._keys, self._values, self._previous)
            self._keys, self._values, self._previous, self._bytes = [], [], [], 0


def _unpickled(function: bytes) -> Callable[..., Any]:
    try:
        return pickle.loads(function)  # type: ignore[no-any-return]
    except Exception as error:
        raise FunctionError(
            f"the function cannot be loaded in Spark's worker: {type(error).__name__}: {error}; install the module "
            "it comes from on the workers, or add it with sparkContext.addPyFile()"
        ) from error
