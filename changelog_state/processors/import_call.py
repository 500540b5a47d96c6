"""``import_state`` as a call like others: a checkpoint's state is the rows of one batch, its query's last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import StructType

from changelog_state.arrangement import key_codec
from changelog_state.calls import Call, Lateness
from changelog_state.errors import ConfigurationError, InvalidInputError, InvalidKeyError, ValueEncodingError
from changelog_state.metrics import BatchSummary
from changelog_state.processors.checkpoint import Checkpoint, first_line
from changelog_state.processors.imported import TIMER_COLUMN, ImportedState, ImportProgram, TakeOverProgram
from changelog_state.task.program import Program
from changelog_state.task.spec import EventTime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ImportCall", "ImportSummary", "TakeOver"]

TakeOver = Callable[[Any, dict[str, Any], Any], None]
"""From (key, value, state): writes one key's state."""
_WATERMARK_COLUMN = "__changelog_state_watermark"
_VALUE_COLUMN = "__changelog_state_value"
_NO_VALUE = "__dummy__"
"""What deduplication keeps per key. That the key is there is all it says."""


@dataclass(frozen=True)
class ImportSummary:
    """What was taken over. The next batch of the query is ``batch`` + 1."""

    query: str
    batch: int
    watermark_ms: int | None
    """Of the next batch."""
    states: Mapping[str, int]
    """How many values, list elements and map entries, by the state's name."""
    timers: int
    """That the query had registered; those that a function sets are not counted."""


@dataclass(frozen=True, kw_only=True)
class ImportCall(Call):
    program: Program
    lateness: Lateness
    checkpoint: Checkpoint
    counted: Mapping[str, int]
    """Values, elements and entries in the checkpoint, by state."""
    timers: int
    records: int | None
    """That must have been written; None: a function decides."""
    into_empty: bool = True

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        path: str,
        operator_id: int,
        function: TakeOver | None,
        key: Mapping[str, str] | None,
        timeout: float | None,
    ) -> ImportCall:
        """
        1. Read which query it was, how far it came, and what state it has.
        2. Put all states of a key into rows with the key's columns; count what there is.
        3. Give them its watermark, so that the next batch has it.
        """
        checkpoint = Checkpoint.read(spark, path, operator_id)
        if checkpoint.is_transform_with_state:
            if function is not None:
                raise ConfigurationError(
                    "func= is for other operators; states of transformWithState keep their names"
                )
            rows, key_columns, states = _states(checkpoint, key)
            counted, timers, records = _counts(rows, states)
            declares = {each.name: each.variable() for each in states}
            program: Program = ImportProgram(tuple(states), checkpoint.by_event_time)
        else:
            frame = checkpoint.state()
            rows, key_columns = _with_keys(frame, key)
            rows = rows.withColumnRenamed("value", _VALUE_COLUMN)
            counted, timers, records, declares = {checkpoint.operator: rows.count()}, 0, None, {}
            program = TakeOverProgram(function or keep_fields, _VALUE_COLUMN)
        event_time = None
        if checkpoint.next_watermark_ms > 0:
            event_time = EventTime(_WATERMARK_COLUMN)
            watermark = F.timestamp_millis(F.lit(checkpoint.next_watermark_ms))
            rows = rows.withColumn(_WATERMARK_COLUMN, watermark)
        return cls(
            df=rows,
            batch_id=checkpoint.batch,
            key=key_columns,
            schema=StructType(),
            timeout=timeout,
            query_id=checkpoint.query,
            watermark_ms=checkpoint.watermark_ms or None,
            variables=None if records is None else {},
            declares=declares,
            program=program,
            lateness=Lateness(event_time),
            checkpoint=checkpoint,
            counted=counted,
            timers=timers,
            records=records,
        )

    def summary(self, batch: BatchSummary) -> ImportSummary:
        """Raises if the store has not got what the checkpoint has."""
        wanted, found = (self.records, batch.changes) if self.records is not None else (self._rows, batch.rows)
        if wanted != found:
            raise InvalidInputError(
                f"checkpoint {self.checkpoint.path} has {wanted} records of state, but {found} were imported; is the "
                "query still running? Stop it, clear() the store, and import again"
            )
        return ImportSummary(batch.query, batch.batch, batch.next_watermark_ms, dict(self.counted), self.timers)

    @property
    def _rows(self) -> int:
        return sum(self.counted.values())


def keep_fields(key: Any, value: Mapping[str, Any], state: Any) -> None:
    """Each field of the operator's own value as a value of this name."""
    for name, each in value.items():
        if name == _NO_VALUE:
            state.set("seen", True)
            continue
        try:
            state.set(name, each)
        except ValueEncodingError as error:
            raise ValueEncodingError(
                f"field {name!r} of the operator's value cannot be kept as it is: {error}; give func= a function "
                "that sets what you want to keep"
            ) from error


def _states(
    checkpoint: Checkpoint, key: Mapping[str, str] | None
) -> tuple[DataFrame, list[str], list[ImportedState]]:
    frames, states = [], []
    for imported, frame in checkpoint.variables():
        states.append(imported)
        frames.append(frame)
    timers = checkpoint.timers()
    if timers is not None:
        frames.append(timers.select("key", F.col("expiration_timestamp_ms").alias(TIMER_COLUMN)))
    if not frames:
        raise InvalidInputError(f"checkpoint {checkpoint.path} has no state: the processor has declared none")
    together = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    return *_with_keys(together, key), states


def _with_keys(frame: DataFrame, key: Mapping[str, str] | None) -> tuple[DataFrame, list[str]]:
    """``key``: columns by the Spark SQL expressions that they are; else the fields of the operator's key."""
    fields = frame.schema["key"].dataType
    assert isinstance(fields, StructType)
    if key is None:
        columns = {name: F.col("key").getField(name) for name in fields.names}
    else:
        columns = _given_columns(frame, fields, key)
    if not columns:
        raise ConfigurationError("the operator's key has no fields; give key= a column, such as {'all': \"'all'\"}")
    others = [column for column in frame.columns if column not in ("key", "partition_id")]
    clashing = sorted(columns.keys() & set(others))
    if clashing:
        raise ConfigurationError(f"key columns {clashing} are called like others of the rows; rename them by key=")
    rows = frame.select(*(column.alias(name) for name, column in columns.items()), *others)
    try:
        key_codec(rows, list(columns))
    except InvalidKeyError as error:
        raise InvalidKeyError(f"{error}; key= does that, such as {{'at': 'unix_millis(key.at)'}}") from error
    return rows, list(columns)


def _given_columns(frame: DataFrame, fields: StructType, key: Mapping[str, str]) -> dict[str, Column]:
    """Raises unless each of the operator's keys becomes a key of its own: two would be written over each other."""
    columns = {name: F.expr(expression) for name, expression in key.items()}
    if not columns:
        return {}
    try:
        counts = frame.agg(F.count_distinct("key"), F.count_distinct(F.struct(*columns.values()))).collect()
    except PySparkException as error:
        raise ConfigurationError(
            f"key={dict(key)} cannot be had from the operator's key, which is {fields.simpleString()}: "
            f"{first_line(error)}; give Spark SQL over it, such as 'key.{next(iter(fields.names), 'user')}'"
        ) from error
    [(before, after)] = counts
    if before != after:
        raise ConfigurationError(
            f"key={dict(key)} makes {after} keys of the operator's {before}, whose fields are "
            f"{fields.simpleString()}; each of them needs a key of its own: add columns that tell them apart"
        )
    return columns


def _counts(rows: DataFrame, states: list[ImportedState]) -> tuple[dict[str, int], int, int]:
    """Values, elements and entries by state; timers; and all records that they are, headers included."""

    def counts() -> Iterator[Any]:
        for each in states:
            column = F.col(each.column)
            yield F.count(column)
            yield F.count(column) if each.kind == "value" else F.coalesce(F.sum(F.size(column)), F.lit(0))
        if TIMER_COLUMN in rows.columns:
            yield F.count(TIMER_COLUMN)

    [found] = rows.agg(*counts()).collect()
    timers = found[2 * len(states)] if TIMER_COLUMN in rows.columns else 0
    counted = {each.name: found[2 * number + 1] for number, each in enumerate(states)}
    headers = sum(found[2 * number] for number, each in enumerate(states) if each.kind != "value")
    return counted, timers, sum(counted.values()) + headers + timers
