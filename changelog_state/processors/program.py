"""A processor over one task's rows: what Spark's operator does in a partition, key by key.

Spark's operator handles the rows of all keys, and then all expired timers in the order of their times. Here each key
has its rows handled and then its timers. No key sees another one's state, so this is the same to a processor, unless
it keeps something of its own from one call to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues
from pyspark.sql.types import StructType

from changelog_state.codec.timers import TimerTime
from changelog_state.errors import ChangelogStateError, FunctionError
from changelog_state.processors.frames import Group, grouped_frames
from changelog_state.processors.handle import ProcessorHandle, TimeMode, is_timer_name
from changelog_state.processors.lateness import on_time
from changelog_state.processors.output import OutputFrames
from changelog_state.processors.spark_frames import FrameRules, SparkFrames
from changelog_state.state.handle import State
from changelog_state.state.variables import List, Map
from changelog_state.task.due import DueWork
from changelog_state.task.key_state import prefetch, stage_state, stage_timers
from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.program import unpickled

__all__ = ["ProcessorProgram"]

_KEYS_AT_ONCE = 10_000


@dataclass(frozen=True)
class ProcessorProgram:
    rewrites: ClassVar[bool] = False

    processor: bytes
    """Pickled. Every task has a copy of its own, as in Spark: what it keeps ends with the task."""
    output_schema: StructType
    time_mode: TimeMode
    rules: FrameRules = field(default_factory=FrameRules)
    schemas: Mapping[str, StructType] = field(default_factory=dict)
    """State schemas that only Spark's own parser understands."""

    def run(self, task: PartitionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        1. Cut the rows into frames by key, and put in between the keys that have a timer or a value expired.
        2. Per Arrow batch: read all keys' state in one request.
        3. Per key: initial state, rows, timers in order of time; stage what changed.
        """
        run = _Run(self, task)
        if self.time_mode == "eventtime":
            batches = on_time(task, batches)
        for groups in grouped_frames(batches, task.spec.key_columns, run.frames):
            yield from run.process(groups)
        yield from run.rest()
        run.close()


class _Run:
    def __init__(self, program: ProcessorProgram, task: PartitionTask) -> None:
        self.frames = SparkFrames(program.rules)
        self._program = program
        self._processor: StatefulProcessor = unpickled(program.processor)
        self._task = task
        self._handle = ProcessorHandle(program.time_mode, program.rules.timezone, program.schemas)
        self._is_ready = False
        self._due: DueWork | None = None
        self._collections: list[List | Map] = []
        self._output = OutputFrames(to_arrow_type(program.output_schema), self.frames)
        spec = task.spec
        watermark_ms = max(0, spec.watermark_ms or 0)
        by_event_time = program.time_mode == "eventtime"
        self._now_ms = watermark_ms if by_event_time else spec.batch_time_ms
        times = (-1, -1) if program.time_mode == "none" else (spec.batch_time_ms, watermark_ms)
        self._timer_values = TimerValues(*times)

    def process(self, groups: list[Group]) -> Iterator[pa.RecordBatch]:
        encoded = self._task.encode_keys([group.key for group in groups])
        due_keys = self._due_work().take_through(encoded[-1])
        if due_keys:
            by_key = dict(zip(encoded, groups, strict=True))
            by_key |= {key: self._group_of(key) for key in due_keys if key not in by_key}
            encoded = sorted(by_key)
            groups = [by_key[key] for key in encoded]
        yield from self._run_keys(groups, encoded)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Keys with something due behind all rows."""
        due_keys = self._due_work().take_through(None)
        for start in range(0, len(due_keys), _KEYS_AT_ONCE):
            encoded = due_keys[start : start + _KEYS_AT_ONCE]
            yield from self._run_keys([self._group_of(key) for key in encoded], encoded)

    def close(self) -> None:
        if self._is_ready:
            self._handle.speak_of(None)
            try:
                self._processor.close()
            except Exception as error:
                raise FunctionError(f"the processor's close() raised {type(error).__name__}: {error}") from error

    def _group_of(self, encoded_key: bytes) -> Group:
        return Group(self._task.codec.decode(encoded_key)[0])

    def _due_work(self) -> DueWork:
        if self._due is None:
            self._due = self._task.due(timers=self._program.time_mode != "none")
        return self._due

    def _make_ready(self) -> None:
        """Once there is something to do."""
        if self._is_ready:
            return
        try:
            self._processor.init(self._handle)
        except ChangelogStateError:
            raise
        except Exception as error:
            raise FunctionError(f"the processor's init() raised {type(error).__name__}: {error}") from error
        self._handle.initialized()
        self._is_ready = True
        variables = self._handle.variables
        context = self._task.context
        context.variables, context.is_plain = {**context.variables, **variables}, False
        self._collections = [each for each in variables.values() if isinstance(each, (List, Map))]

    def _run_keys(self, groups: list[Group], encoded: list[bytes]) -> Iterator[pa.RecordBatch]:
        if not groups:
            return
        self._make_ready()
        task, due, handle = self._task, self._due_work(), self._handle
        stored_of_all = task.session.get(encoded)
        collections = prefetch(task, self._collections, encoded, stored_of_all)
        for number, (group, encoded_key, stored) in enumerate(zip(groups, encoded, stored_of_all, strict=True)):
            state = State(stored, task.context, encoded_key)
            for name, entries, complete in collections.get(number, ()):
                state._prefetched(name, entries, complete)
            for name in handle.deleted & stored.keys():
                state.delete(name)
            handle.speak_of(state)
            try:
                for frame in self._frames_of(group, state, due.timers.get(encoded_key, ())):
                    yield from map(self._batch, self._output.add(group.key, frame))
                if state._timers is not None:
                    stage_timers(task, encoded_key, state._timers)
                stage_state(task, encoded_key, state, due.expired.get(encoded_key, ()))
            except Exception as error:
                raise self._failed(group.key, error) from error
        task.stage.send()
        yield from map(self._batch, self._output.rest())

    def _frames_of(self, group: Group, state: State, due: Iterable[tuple[str, TimerTime]]) -> Iterator[Any]:
        processor, times = self._processor, self._timer_values
        for initial in group.initial:
            processor.handleInitialState(group.given_key, initial, times)
        if group.frames:
            yield from _frames(
                "handleInputRows", processor.handleInputRows(group.given_key, iter(group.frames), times)
            )
        if self._program.time_mode == "none" or not (due or state._timers is not None):
            return
        parts = group.key if isinstance(group.key, tuple) else (group.key,)
        key = tuple([bytearray(part) if isinstance(part, bytes) else part for part in parts])
        # All that are due now, be it that the handling of one deletes another one: Spark has read them all by then.
        for at_ms in self._expired(state, due):
            self._task.counts.timers += 1
            yield from _frames(
                "handleExpiredTimer",
                processor.handleExpiredTimer(key=key, timerValues=times, expiredTimerInfo=ExpiredTimerInfo(at_ms)),
            )
            self._handle.deleteTimer(at_ms)

    def _expired(self, state: State, due: Iterable[tuple[str, TimerTime]]) -> list[int]:
        found = {int(name) for name, _ in due if is_timer_name(name)}
        changes = {} if state._timers is None else state._timers.changes
        for name, time in changes.items():
            if time is None:
                found.discard(int(name))
            elif time.at_ms <= self._now_ms:
                found.add(time.at_ms)
        return sorted(found)

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        """With the tickets' column, where there are tickets."""
        schema = self._task.spec.output_schema
        if not schema.names:
            return pa.RecordBatch.from_arrays(columns, names=self._program.output_schema.names)
        return pa.record_batch([*columns, pa.nulls(len(columns[0]), schema[-1].type)], schema=schema)

    def _failed(self, key: Any, error: Exception) -> ChangelogStateError:
        where = f"for key {key!r} in batch {self._task.spec.batch}"
        if isinstance(error, ChangelogStateError):
            return type(error)(f"{error} ({where})")
        return FunctionError(
            f"the processor raised {type(error).__name__} {where}: {error}; nothing of this batch was committed"
        )


def _frames(method: str, returned: Any) -> Iterator[Any]:
    try:
        return iter(returned)
    except TypeError as error:
        raise FunctionError(
            f"{method}() of the processor returned {returned!r}, which is no iterator of frames; yield pandas "
            "DataFrames, or 'yield from ()' if there are none"
        ) from error
