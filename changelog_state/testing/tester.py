"""``StateTester``: a user's function over batches of rows, with no Kafka and no Spark; milliseconds per test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from changelog_state.calls import Lateness, LatePolicy
from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.kinds import DATA, TIMER
from changelog_state.codec.timers import decode_timer
from changelog_state.durations import Duration, PointInTime, duration_ms, point_ms, to_datetime
from changelog_state.errors import ConfigurationError, InvalidInputError, InvalidKeyError
from changelog_state.metrics import BatchSummary
from changelog_state.schemas.declarations import Declarations
from changelog_state.state.context import StateContext
from changelog_state.state.handle import declared
from changelog_state.state.outside import values_of
from changelog_state.state.ttl import Ttl, ttl_of
from changelog_state.state.variables import Variable, declared_types
from changelog_state.tables.context import opened_tables
from changelog_state.task.keyed import KeyedProgram
from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.program import Program
from changelog_state.task.row_map import row_map_program
from changelog_state.task.spec import LATE_COLUMN, BatchSpec
from changelog_state.testing.output import CheckedRows, PlainRows
from changelog_state.testing.partition import MemoryPartition
from changelog_state.testing.tables import GivenTable
from changelog_state.window_calls import Emit, windowed
from changelog_state.windows import WindowKind

if TYPE_CHECKING:
    from pyspark.sql.streaming import StatefulProcessor
    from pyspark.sql.types import StructType

    from changelog_state.tables.table import GlobalTable

__all__ = ["StateTester"]

_START = datetime(2024, 1, 1, tzinfo=UTC)
_LARGEST_RECORD_BYTES = 16 * 1024 * 1024
_KEY_TYPES = {
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int64(): "long",
}

Row = Mapping[str, Any]


@dataclass
class _Batch:
    """What a replay finds unchanged."""

    spec: BatchSpec
    rows: pa.RecordBatch | None
    digest: str | None = None
    """Of what it has changed."""


class StateTester:
    """Runs batches as ``StateService.apply`` would, on one partition in memory.

    The arguments are those of ``apply`` and of ``StateService``; instead of a function it also takes whatever runs a
    batch in their place (a program). Time stands still unless it is moved: it begins with 2024 in UTC.
    """

    def __init__(
        self,
        func: Callable[..., Any] | Program | StatefulProcessor,
        *,
        key: str | Sequence[str],
        schema: str | StructType | None = None,
        output_schema: str | StructType | None = None,
        time_mode: str = "None",
        initial_state: Iterable[Row] = (),
        on_timer: Callable[..., Any] | None = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        late: LatePolicy = "accept",
        state: Sequence[Variable] = (),
        ttl: Duration | Ttl | None = None,
        migration: Literal["lazy", "eager"] = "lazy",
        global_tables: Mapping[GlobalTable, Mapping[Any, Any]] | None = None,
        key_types: Sequence[str] | None = None,
        now: PointInTime = _START,
    ) -> None:
        """``schema``: of a function's output rows, which are then checked and converted as in a task.
        ``output_schema``, ``time_mode``, ``initial_state``: of a ``StatefulProcessor``.
        ``global_tables``: for each table that the function looks into, what it has.
        ``key_types``: as Spark names them ("string", "int"); else they are those of the first rows."""
        processed = _is_processor(func)
        of_processors = {"output_schema": output_schema}
        if not hasattr(func, "run"):
            of_processors |= {"time_mode": time_mode != "None", "initial_state": initial_state}
        of_functions = {"schema": schema, "on_timer": on_timer}
        given = [name for name, value in (of_functions if processed else of_processors).items() if value]
        if given:
            raise ConfigurationError(
                f"{given[0]}= is for functions, and this is a processor; the schema of its frames is output_schema="
                if processed
                else f"{given[0]}= is for processors, and this is none; the schema of a function's rows is schema="
            )
        self._lateness = Lateness.of(event_time, watermark_delay, late)
        self._processed_as = (output_schema, time_mode)
        self._initial_state = list(initial_state)
        self._program: Any = func
        if not hasattr(func, "run") and not processed:
            self._program = KeyedProgram(func, on_timer, self._lateness.function)
        self._key_columns = (key,) if isinstance(key, str) else tuple(key)
        self._codec = None if key_types is None else KeyCodec.from_spark(key_types)
        self._declarations = Declarations()
        self._variables: Mapping[str, Variable] = {}
        self._output: Any = PlainRows() if schema is None else CheckedRows(schema)
        self._tables = None if global_tables is None else [GivenTable(*each) for each in global_tables.items()]
        self.declare(func if processed else state)
        self._eager = migration == "eager"
        self._more_key_types: tuple[str, ...] = getattr(self._program, "more_key_types", ())
        self._ttl = ttl_of(ttl)
        self._now_ms = point_ms(now, "now")
        self._watermark_ms: int | None = None
        self._late_watermark_ms: int | None = None
        self._partition = MemoryPartition()
        self._number = -1
        self._last: _Batch | None = None
        self.last_batch: BatchSummary | None = None
        """What the last batch was and did, as ``StateService.last_batch`` tells it."""
        self.outputs: list[dict[str, Any]] = []
        """All rows that batches have given; those of replays are not among them."""
        self.late: list[dict[str, Any]] = []
        """Rows that came too late for a window, if ``late="side_output"``."""

    @classmethod
    def stateful_map(
        cls,
        func: Callable[..., Any],
        *,
        key: str | Sequence[str],
        initial: Any = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        late: LatePolicy = "accept",
        **settings: Any,
    ) -> Self:
        """Batches of ``StateService.stateful_map``."""
        lateness = Lateness.of(event_time, watermark_delay, late)
        kit = cls(row_map_program(func, initial, lateness.function), key=key, **settings)
        kit._lateness = lateness
        return kit

    @classmethod
    def apply_windows(
        cls,
        func: Callable[..., Any],
        *,
        window: WindowKind,
        key: str | Sequence[str],
        event_time: str,
        watermark_delay: Duration = 0,
        emit: Emit = "update",
        on_close: Callable[..., Any] | None = None,
        late: LatePolicy = "drop",
        **settings: Any,
    ) -> Self:
        """Batches of ``StateService.apply_windows``. A window's state has the key (key, start in milliseconds)."""
        program, lateness = windowed(
            func,
            window=window,
            event_time=event_time,
            watermark_delay=watermark_delay,
            emit=emit,
            on_close=on_close,
            late=late,
        )
        kit = cls(program, key=key, **settings)
        kit._lateness = lateness
        return kit

    # -- batches -----------------------------------------------------------------------------------------

    def batch(self, rows: Iterable[Row] = ()) -> list[dict[str, Any]]:
        """The next batch; returns its output rows. Without rows only timers are called and values expire."""
        given = [dict(row) for row in rows]
        self._number += 1
        if self._number == 0 and self._initial_state:
            event_time = self._lateness.event_time
            event_column = None if event_time is None else event_time.column
            from changelog_state.processors.initial import rows_with_initial_state

            given = rows_with_initial_state(given, self._initial_state, self._key_columns, event_column)
        frame = self._frame(given)
        self._last = _Batch(self._spec(frame), frame)
        output, counts = self._run(self._last)
        self._note(counts)
        self.late += [row[LATE_COLUMN] for row in output if LATE_COLUMN in row]
        self.outputs += _without_late(output)
        return _without_late(output)

    def replay(self) -> list[dict[str, Any]]:
        """The last batch once more, as after a crash of the driver; returns its rows, which should be the same.

        Raises if the function has made other changes than the first time.
        """
        if self._last is None:
            raise InvalidInputError("there is no batch to be replayed; call batch() first")
        return _without_late(self._run(self._last)[0])

    def advance(self, duration: Duration) -> None:
        """Batch time goes on by so much."""
        self._now_ms += duration_ms(duration, "duration", at_least_ms=0)

    def declare(self, state: Sequence[Variable] | StatefulProcessor) -> None:
        """A new version of the program, with other declarations; raises if it could not read what is stored."""
        if _is_processor(state):
            schema, time_mode = self._processed_as
            if schema is None:
                raise ConfigurationError("a processor's frames need a schema; give output_schema=")
            from changelog_state.processors.declaring import program_without_spark
            from changelog_state.processors.handle import NO_EVENT_TIME, time_mode_of

            if time_mode_of(time_mode) == "eventtime" and self._lateness.event_time is None:
                raise ConfigurationError(NO_EVENT_TIME)
            self._program, variables = program_without_spark(state, schema, time_mode)
            self._declarations = self._declarations.agreed(declared_types(variables))
            return
        variables = declared(state)
        self._declarations = self._declarations.agreed(declared_types(variables))
        self._variables = variables

    def restart(self) -> None:
        """The agent is killed, and comes back with what its disk has; the changelog has the rest."""
        self._partition.restart()

    def restore(self) -> None:
        """The disk is lost: everything comes back from the changelog."""
        self._partition.restore()

    def compact(self) -> None:
        """Kafka removes from the changelog what was overwritten since. A restore must not need it."""
        self._partition.log.compact()

    # -- looking -----------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return to_datetime(self._now_ms)

    @property
    def watermark(self) -> datetime | None:
        """Of the next batch."""
        return None if self._watermark_ms is None else to_datetime(self._watermark_ms)

    def get(self, key: Any, name: str, default: Any = None) -> Any:
        """One value of one key, as committed; lists and maps as a whole."""
        return self.get_all(key).get(name, default)

    def get_all(self, key: Any) -> dict[str, Any]:
        """All names and values of a key, lists and maps as a whole."""
        prefix = DATA + self._key_codec().encode(key)
        records = self._partition.state.scan_prefix(prefix)
        return values_of(self._context(), ((record_key[len(prefix) :], data) for record_key, data in records))

    def state(self) -> dict[Any, dict[str, Any]]:
        """All keys that have any state, in order."""
        codec, found = self._key_codec(), {}
        for record_key, _ in self._partition.state.scan_prefix(DATA):
            key, _ = codec.decode(record_key, 1)
            if key not in found:
                found[key] = self.get_all(key)
        return {key: values for key, values in found.items() if values}

    def timers(self, key: Any) -> dict[str, datetime]:
        """All timers of a key, by their names."""
        prefix = TIMER + self._key_codec().encode(key)
        return {
            record_key[len(prefix) :].decode(): to_datetime(decode_timer(data).at_ms)
            for record_key, data in self._partition.state.scan_prefix(prefix)
        }

    def records(self) -> dict[bytes, bytes]:
        """State and timers as they are stored, expired values too."""
        return {key: data for kind in (DATA, TIMER) for key, data in self._partition.state.scan_prefix(kind)}

    # -- inside ------------------------------------------------------------------------------------------

    def _run(self, batch: _Batch) -> tuple[list[dict[str, Any]], BatchSummary]:
        number = batch.spec.batch
        sessions = []

        def connect() -> Any:
            sessions.append(self._partition.session(number))
            return sessions[-1]

        task = PartitionTask(batch.spec, connect, is_due=True, output=self._output)
        batches = iter(() if batch.rows is None else (batch.rows,))
        produced: list[dict[str, Any]] = []
        with nullcontext() if self._tables is None else opened_tables(self._tables):
            for output in self._program.run(task, task.accepted(batches)):
                produced += output.to_pylist() if isinstance(output, pa.RecordBatch) else output
        told = task.finish()
        # The owner cannot tell a batch that has changed nothing from one that it has never seen.
        is_other = batch.digest not in (None, told["digest"])
        if is_other or not self._partition.commit(number, sessions[0].work if sessions else None):
            raise InvalidInputError(
                f"replaying batch {number} has computed other changes than the first time; is the function "
                "deterministic? It may depend only on key, rows, state and batch time"
            )
        batch.digest = told["digest"]
        counts = told["counts"]
        latest = counts.pop("max_event_ms")
        before = batch.spec.watermark_ms
        reached = None if latest is None else latest - self._lateness.delay_ms
        after = max((each for each in (before, reached) if each is not None), default=None)
        return produced, BatchSummary(
            "test",
            number,
            batch.spec.batch_time_ms,
            before,
            after,
            changes=told["records"],
            outputs=told["outputs"],
            **counts,
        )

    def _note(self, summary: BatchSummary) -> None:
        self.last_batch = summary
        self._late_watermark_ms, self._watermark_ms = self._watermark_ms, summary.next_watermark_ms

    def _spec(self, frame: pa.RecordBatch | None) -> BatchSpec:
        return BatchSpec(
            batch=self._number,
            program=b"",
            columns=() if frame is None else tuple(frame.schema.names),
            key_columns=self._key_columns,
            key_types=self._key_codec().types,
            output_schema=pa.schema([]),
            batch_time_ms=self._now_ms,
            largest_record_bytes=_LARGEST_RECORD_BYTES,
            watermark_ms=self._watermark_ms,
            late_watermark_ms=self._late_watermark_ms,
            event_time=self._lateness.event_time,
            variables=self._variables,
            ttl=self._ttl,
            generations=self._declarations.writer_schemas(),
            rewrite=self._eager and self._declarations.has_old_generations(self._variables),
        )

    def _frame(self, rows: list[dict[str, Any]]) -> pa.RecordBatch | None:
        """The rows as Spark would hand them to a task: sorted by key, those of a key in the order given."""
        if not rows:
            return None
        missing = [column for column in self._key_columns if column not in rows[0]]
        if missing:
            raise InvalidKeyError(f"rows have no key columns {missing}: {rows[0]!r}; give rows that have them")
        names = list(dict.fromkeys(name for row in rows for name in row))
        if self._codec is None:
            sample = [pa.array([row[column] for row in rows]) for column in self._key_columns]
            unknown = [str(each.type) for each in sample if each.type not in _KEY_TYPES]
            if unknown:
                raise InvalidKeyError(f"key columns cannot be of type {unknown}; use str, bytes, int or bool")
            self._codec = KeyCodec(tuple(_KEY_TYPES[each.type] for each in sample))
        codec = self._codec
        ordered = sorted(rows, key=lambda row: codec.encode(self._key_of(row)))
        return pa.RecordBatch.from_arrays([pa.array([row.get(name) for row in ordered]) for name in names], names)

    def _key_of(self, row: Row) -> Any:
        parts = tuple(row[column] for column in self._key_columns)
        return parts[0] if len(parts) == 1 else parts

    def _key_codec(self) -> KeyCodec:
        types = ("string",) * len(self._key_columns) if self._codec is None else self._codec.types
        return KeyCodec((*types, *self._more_key_types))

    def _context(self) -> StateContext:
        reads = self._partition.session(self._number + 1)
        return StateContext(
            self._now_ms,
            self._watermark_ms,
            variables=self._variables,
            generations=self._declarations.writer_schemas(),
            reads=reads,
        )


def _without_late(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if LATE_COLUMN not in row]


def _is_processor(given: Any) -> bool:
    """Told without importing what it runs on: pandas takes a second."""
    if not hasattr(given, "handleInputRows"):
        return False
    if isinstance(given, type):
        from changelog_state.processors.declaring import no_processor

        raise no_processor(given)
    return True
