"""``transform_with_state`` as a call like others: a processor, its schemas read once, and the rows it is to see."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from changelog_state.arrangement import Arranged, OrderBy, arrange, row_order
from changelog_state.calls import Call, Lateness
from changelog_state.durations import Duration
from changelog_state.errors import ConfigurationError
from changelog_state.kafka_output import KafkaOutput
from changelog_state.processors.declaring import declare, is_processor, no_processor
from changelog_state.processors.handle import NO_EVENT_TIME, ProcessorHandle, TimeMode, time_mode_of
from changelog_state.processors.initial import input_column, with_initial_state
from changelog_state.processors.program import ProcessorProgram
from changelog_state.processors.row_codec import as_strings
from changelog_state.processors.spark_frames import FrameRules
from changelog_state.task.program import pickled
from changelog_state.task.schema import user_schema

if TYPE_CHECKING:
    from pyspark.sql import GroupedData

__all__ = ["TransformCall"]

logger = logging.getLogger(__name__)

_WATERMARK_DELAY = "spark.watermarkDelayMs"
"""What ``withWatermark`` leaves in a column's metadata, in milliseconds. It stays when columns are selected."""


@dataclass(frozen=True, kw_only=True)
class TransformCall(Call):
    program: ProcessorProgram
    lateness: Lateness
    rows: DataFrame
    """As the user gave them; ``df`` also has the initial state."""

    @classmethod
    def of(
        cls,
        df: DataFrame,
        batch_id: int,
        processor: Any,
        *,
        key: str | Sequence[str],
        output_schema: str | StructType,
        time_mode: str,
        initial_state: DataFrame | GroupedData | None,
        event_time: str | None,
        watermark_delay: Duration | None,
        partitioning: str,
        order_by: OrderBy,
        output_topic: str | KafkaOutput | None,
        timeout: float | None,
        query_id: str | None,
    ) -> TransformCall:
        """
        1. Pickle the processor: each task has a copy of its own.
        2. Have a copy declare its state, once, as Spark does on the driver too: what is wrong is said before a job.
        3. Find the column of event time, if the DataFrame does not come without one.
        4. Put initial state beside the rows.
        """
        if not is_processor(processor):
            raise no_processor(processor)
        mode = time_mode_of(time_mode)
        key_columns = (key,) if isinstance(key, str) else tuple(key)
        lateness = _lateness(df, mode, event_time, watermark_delay)
        data = pickled(processor)
        declared = _declared(data, mode)
        program = ProcessorProgram(
            data,
            user_schema(output_schema),
            mode,
            FrameRules.of(df.sparkSession),
            declared.understood,
        )
        rows = df
        if initial_state is not None and batch_id == 0:
            if partitioning != "hash":
                raise ConfigurationError(f"initial_state goes with partitioning='hash' only, not {partitioning!r}")
            _order_names(df, order_by)
            event_column = None if lateness.event_time is None else lateness.event_time.column
            df = with_initial_state(df, _plain(initial_state), key_columns, event_column)
        return cls(
            df=df,
            batch_id=batch_id,
            key=key,
            schema=output_schema,
            partitioning=partitioning,
            order_by=order_by,
            output_topic=output_topic,
            timeout=timeout,
            query_id=query_id,
            declares=declared.variables,
            program=program,
            lateness=lateness,
            rows=rows,
        )

    def arranged(self, partitions: int) -> Arranged:
        if self.df is self.rows:
            return super().arranged(partitions)
        # What orders the rows of a key is inside of a struct now.
        order: list[str | Column] = [input_column(name) for name in _order_names(self.rows, self.order_by)]
        return arrange(self.df, self.key_columns, self.partitioning, partitions, order)


def _lateness(df: DataFrame, mode: TimeMode, column: str | None, delay: Duration | None) -> Lateness:
    """Late rows are accepted by the task: which ones Spark would leave out, the program knows."""
    if mode == "none":
        return Lateness()
    known = {field.name: field.metadata or {} for field in df.schema.fields}
    marked = {name: metadata[_WATERMARK_DELAY] for name, metadata in known.items() if _WATERMARK_DELAY in metadata}
    if column is None and len(marked) > 1:
        raise ConfigurationError(f"the DataFrame has watermarks on {sorted(marked)}; say which one by event_time=")
    column = column or next(iter(marked), None)
    if column is None and (mode == "eventtime" or delay is not None):
        raise ConfigurationError(NO_EVENT_TIME)
    if delay is None:
        delay = marked.get(column, 0) / 1000 if column is not None else 0
    return Lateness.of(column, delay, "accept")


@lru_cache(maxsize=16)
def _declared(processor: bytes, mode: TimeMode) -> _DriverHandle:
    """Once, as Spark does it: every batch brings the same processor."""
    return declare(processor, _DriverHandle(mode))


class _DriverHandle(ProcessorHandle):
    """Here Spark's own parser can be asked."""

    def __init__(self, mode: TimeMode) -> None:
        super().__init__(mode)
        self.understood: dict[str, StructType] = {}
        """State schemas in words that tasks cannot read by themselves."""

    def parsed(self, schema: StructType | str) -> StructType:
        try:
            return super().parsed(schema)
        except ConfigurationError as error:
            logger.debug("asking Spark: %s", error)
            assert isinstance(schema, str)
            found = self.understood[schema] = as_strings(user_schema(schema))
            return found


def _order_names(df: DataFrame, order_by: OrderBy) -> list[str]:
    if order_by is None:
        return ["partition", "offset", "topic"] if row_order(df, None) else []
    wanted = [order_by] if isinstance(order_by, (str, Column)) else list(order_by)
    names = [name for name in wanted if isinstance(name, str)]
    if len(names) < len(wanted):
        raise ConfigurationError("with initial_state, order_by takes names of columns only; add a column that orders")
    row_order(df, names)
    return names


def _plain(initial_state: Any) -> DataFrame:
    """Spark wants it grouped by the key; here the key is known."""
    frame = getattr(initial_state, "_df", initial_state)
    if not hasattr(frame, "columns"):
        raise ConfigurationError(f"initial_state is {initial_state!r}; give a DataFrame that has the key's columns")
    return frame
