"""State of a Spark query as it comes into a store: with the times to live and timers that it had there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType

from changelog_state.codec.timers import TimerTime
from changelog_state.errors import InvalidInputError
from changelog_state.processors.entry_keys import EntryKeys, key_types
from changelog_state.processors.row_codec import RowCodec
from changelog_state.processors.variables import RowList, RowMap, RowValue
from changelog_state.state.context import StateContext
from changelog_state.state.handle import State, state_class
from changelog_state.state.ttl import Ttl
from changelog_state.state.variables import Variable
from changelog_state.task.grouping import grouped
from changelog_state.task.key_state import failed, stage_state, stage_timers
from changelog_state.task.partition_task import PartitionTask

__all__ = ["TIMER_COLUMN", "ImportProgram", "ImportedState", "Kind", "TakeOverProgram"]

Kind: TypeAlias = Literal["value", "list", "map"]
TIMER_COLUMN = "timer"
_SOME_TTL = 1.0
"""How long does not matter: every value brings its time along."""


@dataclass(frozen=True)
class ImportedState:
    column: str
    """Of the rows, in which it is; null in rows of other states."""
    name: str
    kind: Kind
    schema: StructType
    key_schema: StructType | None
    expires: bool

    def variable(self) -> Variable:
        codec, ttl = RowCodec(self.schema, self.name), _SOME_TTL if self.expires else None
        if self.kind == "value":
            return RowValue(self.name, codec, ttl=ttl)
        if self.kind == "list":
            return RowList(self.name, codec, ttl=ttl)
        assert self.key_schema is not None
        return RowMap(self.name, None, codec, ttl=ttl, key_types=key_types(self.key_schema))


@dataclass(frozen=True)
class ImportProgram:
    """Rows have the key, and one state of it each, or one timer."""

    rewrites: ClassVar[bool] = False

    states: Sequence[ImportedState]
    by_event_time: bool

    def run(self, task: PartitionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        1. Group the rows by key.
        2. Per key: write all of its states and timers; stage them. There is no output.
        """
        spec = task.spec
        variables = {each.name: each.variable() for each in self.states}
        context = _Context(spec.batch_time_ms, spec.watermark_ms, variables=variables, reads=task.session)
        context.schemas = task.schemas
        writers = [_Writer(each, context) for each in self.states]
        _write_all(
            task,
            batches,
            lambda stored, encoded_key: State(stored, context, encoded_key),
            lambda key, row, state: self._write(row, writers, state),
        )
        yield from ()

    def _write(self, row: Mapping[str, Any], writers: Sequence[_Writer], state: State) -> None:
        at_ms = row.get(TIMER_COLUMN)
        if at_ms is not None:
            state._key_timers().change(str(at_ms), TimerTime(at_ms, self.by_event_time))
        for writer in writers:
            if row[writer.imported.column] is not None:
                writer.write(row[writer.imported.column], state)


@dataclass(frozen=True)
class TakeOverProgram:
    """Rows have the key, and Spark's value. Timers that are set stay for later batches, also those that are due."""

    rewrites: ClassVar[bool] = False

    function: Callable[[Any, dict[str, Any], Any], None]
    column: str
    """Of Spark's value."""

    def run(self, task: PartitionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = task.context
        context.timer_clock = task.default_clock
        make = state_class(task.spec.variables)
        _write_all(
            task,
            batches,
            lambda stored, encoded_key: make(stored, context, encoded_key),
            lambda key, row, state: self.function(key, row[self.column], state),
        )
        yield from ()


def _write_all(
    task: PartitionTask,
    batches: Iterator[pa.RecordBatch],
    make: Callable[[dict[str, bytes], bytes], State],
    write: Callable[[Any, Mapping[str, Any], State], None],
) -> None:
    for keys, rows_of_all in grouped(batches, task.spec.key_columns):
        encoded = task.encode_keys(keys)
        for key, rows, encoded_key, stored in zip(keys, rows_of_all, encoded, task.session.get(encoded), strict=True):
            state = make(stored, encoded_key)
            try:
                for row in rows:
                    write(key, row, state)
                stage_timers(task, encoded_key, state._key_timers())
                stage_state(task, encoded_key, state)
            except Exception as error:
                raise failed(task, key, error) from error
        task.stage.send()


class _Context(StateContext):
    """Values get the time that they bring along."""

    given_ms = 0

    def expires_ms(self, ttl: Ttl) -> int:
        return self.given_ms


class _Writer:
    def __init__(self, imported: ImportedState, context: _Context) -> None:
        self.imported = imported
        self._context = context
        key_schema = imported.key_schema
        self._keys = None if key_schema is None else EntryKeys(key_schema, f"the key of state {imported.name!r}")

    def write(self, found: Any, state: State) -> None:
        name = self.imported.name
        if self.imported.kind == "value":
            state.set(name, self._value(found))
        elif self._keys is None:
            rows = state.list(name)
            for each in found:
                rows.append(self._value(each))
        else:
            entries = state.map(name)
            for each in found:
                key = self._keys.encode(each["key"])
                if key in entries:
                    raise InvalidInputError(f"state {name!r} has the key {each['key']!r} twice")
                entries[key] = self._value(each["value"])

    def _value(self, found: Any) -> Any:
        if not self.imported.expires:
            return found
        self._context.given_ms = found["ttlExpirationMs"]
        return found["value"]
