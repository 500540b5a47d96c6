"""One partition of one batch: what a program has at hand, be it in Spark's worker or in a test without Spark.

Every execution is a pure function of the state before the batch and the task's rows. It stages; it never commits:
when Spark cancels a task its input simply ends, so a task cannot know whether it has seen everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.codec.digest import EMPTY_DIGEST
from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.timers import TimerTime
from changelog_state.errors import InvalidKeyError
from changelog_state.faults import fault_point
from changelog_state.state.context import StateContext
from changelog_state.state.ttl import Clock
from changelog_state.task.due import MOST_EXPIRED, MOST_TIMERS, DueWork
from changelog_state.task.event_time import EventTimes
from changelog_state.task.output import OutputRows
from changelog_state.task.output_records import OutputRecords
from changelog_state.task.reads import TaskSession
from changelog_state.task.spec import LATE_COLUMN, TICKET_COLUMN, BatchSpec
from changelog_state.task.staging import Stage

__all__ = ["Counts", "PartitionTask"]


@dataclass
class Counts:
    """What a task tells of its batch, beside its rows and changes."""

    rows: int = 0
    late_rows: int = 0
    timers: int = 0
    """That were called."""
    rewritten: int = 0
    """Values of earlier generations that the batch wrote anew because it was told to, and not the function."""
    expired: int = 0
    """Values whose time was over, and that were removed."""
    max_event_ms: int | None = None


class PartitionTask:
    def __init__(
        self, spec: BatchSpec, connect: Callable[[], TaskSession], *, is_due: bool, output: Any = None
    ) -> None:
        """``output``: what makes Arrow of output rows, if not the spec's schema does."""
        self.spec = spec
        self.codec = KeyCodec(spec.key_types)
        self.counts = Counts()
        self.stage = Stage(lambda: self.session, spec.largest_record_bytes)
        self.output = output or OutputRows(spec.output_schema)
        self.names: dict[str, bytes] = {}
        """Every name that was staged, and what it adds to a record key."""
        self.schemas: dict[bytes, str] = {}
        """With which values were staged, beyond the built-in one: JSON by fingerprint."""
        self._connect = connect
        self._is_due = is_due
        self._session: TaskSession | None = None

    @property
    def session(self) -> TaskSession:
        if self._session is None:
            self._session = self._connect()
        return self._session

    def accepted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, counted; late ones only if they are to be seen. Keys are not null."""
        times = EventTimes(self.spec.event_time, self.spec.watermark_ms, self.counts)
        for batch in batches:
            for column in self.spec.key_columns:
                if batch.column(column).null_count:
                    raise InvalidKeyError(
                        f"key column {column!r} is null in {batch.column(column).null_count} rows of batch "
                        f"{self.spec.batch}; filter them out, or give them a key, before apply()"
                    )
            self.counts.rows += batch.num_rows
            yield times.accepted(batch)

    def produced(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A program's output rows, handed to the owner too if they are for a topic."""
        topic = self.spec.output_topic
        if topic is None:
            yield from rows
            return
        fields = [each for each in self.spec.output_schema if each.name not in (LATE_COLUMN, TICKET_COLUMN)]
        records = OutputRecords(topic, pa.schema(fields))
        for batch in rows:
            late = batch.schema.get_field_index(LATE_COLUMN)
            in_time = batch if late < 0 else batch.filter(pc.is_null(batch.column(late)))
            for keys, values, headers in records.of(in_time):
                self.session.output(topic.name, keys, values, headers)
            yield batch

    def encode_keys(self, keys: list[Any]) -> list[bytes]:
        single = len(self.codec.types) == 1
        return self.codec.encode_columns([keys] if single else [list(part) for part in zip(*keys, strict=True)])

    @cached_property
    def context(self) -> StateContext:
        """Of all keys' state. A program that handles timers sets its ``timer_clock``."""
        spec = self.spec
        found = StateContext(
            spec.batch_time_ms,
            spec.watermark_ms,
            variables=spec.variables,
            ttl=spec.ttl,
            generations=spec.generations,
            event_column=None if spec.event_time is None else spec.event_time.column,
            reads=self.session,
        )
        found.schemas = self.schemas
        return found

    @property
    def default_clock(self) -> Clock:
        return "processing" if self.spec.event_time is None else "event"

    def due(self, *, timers: bool) -> DueWork:
        """``timers``: whether the program handles them; else they stay."""
        if not self._is_due:
            return DueWork((), self.codec, MOST_TIMERS)
        spec = self.spec
        found = self.session.due(spec.batch_time_ms, spec.watermark_ms, MOST_TIMERS if timers else 0, MOST_EXPIRED)
        return DueWork(found, self.codec, MOST_TIMERS)

    def may_call(self, time: TimerTime, due: DueWork) -> bool:
        """A timer that was set in this batch, and is due: not before earlier ones, nor if there were enough."""
        return time.by_event_time not in due.is_cut and self.counts.timers < MOST_TIMERS

    def finish(self) -> dict[str, Any]:
        """Seal what was staged: what the ticket tells. Who has not spoken to the owner has nothing to say to it."""
        if self._session is None:
            nothing = {"stage_id": None, "digest": EMPTY_DIGEST.hex(), "records": 0, "outputs": 0}
            return {**nothing, "counts": asdict(self.counts)}
        self.stage.finish()
        fault_point("task.before_stage")
        return {**self._session.seal(self.names, self.schemas), "counts": asdict(self.counts)}

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
