"""What a user asks for with one batch, checked before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from changelog_state.durations import Duration, duration_ms, to_datetime
from changelog_state.errors import ConfigurationError, InvalidInputError
from changelog_state.kafka_output import KafkaOutput
from changelog_state.settings import check_choice
from changelog_state.state.variables import Variable
from changelog_state.task.spec import EventTime

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from changelog_state.arrangement import Arranged, OrderBy

__all__ = ["PARTITIONERS", "Call", "LatePolicy", "Lateness"]

PARTITIONERS = {"hash": "spark", "source": "kafka"}
LatePolicy: TypeAlias = Literal["accept", "drop", "side_output"] | Callable[..., Any]
_TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Call:
    df: DataFrame
    batch_id: int
    key: str | Sequence[str]
    schema: str | StructType
    partitioning: str = "hash"
    order_by: OrderBy = None
    timeout: float | None = None
    query_id: str | None = None
    variables: Mapping[str, Variable] | None = None
    """Instead of what the service declares for users' functions, its time to live included."""
    declares: Mapping[str, Variable] = field(default_factory=dict)
    """Variables beside those, as the call's own functions declare them."""
    output_topic: str | KafkaOutput | None = None
    more_key_types: tuple[str, ...] = ()
    """What keys have in the store behind the columns of the user's key: a window."""
    more_fields: tuple[StructField, ...] = ()
    """What tasks give out beside the rows of ``schema``, in columns of their own."""
    watermark_ms: int | None = None
    """Before the first batch of a store."""
    into_empty: bool = False
    """The batch is a store's first one, or else a replay that changes what it changed before."""
    key_columns: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.batch_id, bool) or not isinstance(self.batch_id, int) or self.batch_id < 0:
            raise InvalidInputError(f"batch_id is {self.batch_id!r}; pass on what foreachBatch gave you")
        check_choice("partitioning", self.partitioning, tuple(PARTITIONERS))
        key_columns = (self.key,) if isinstance(self.key, str) else tuple(self.key)
        object.__setattr__(self, "key_columns", key_columns)

    def event_time(self, lateness: Lateness) -> EventTime | None:
        """As tasks are to know it."""
        return lateness.event_time

    def arranged(self, partitions: int) -> Arranged:
        """The rows, so that one task holds one state partition with the rows of a key together."""
        from changelog_state.arrangement import arrange

        return arrange(self.df, self.key_columns, self.partitioning, partitions, self.order_by)

    @property
    def record_key(self) -> tuple[str, ...]:
        """The output columns that make the key of records for a topic, if the user names no others."""
        return self.key_columns

    @property
    def partitioner(self) -> str:
        return PARTITIONERS[self.partitioning] + ("-windows" if self.more_key_types else "")


@dataclass(frozen=True)
class Lateness:
    """When rows happened, and what becomes of those that come after the watermark has passed them."""

    event_time: EventTime | None = None
    delay_ms: int = 0
    function: Callable[..., Any] | None = None

    @classmethod
    def of(cls, column: str | None, delay: Duration, late: LatePolicy) -> Lateness:
        if not callable(late):
            check_choice("late", late, ("accept", "drop", "side_output"))
        delay_ms = duration_ms(delay, "watermark_delay", at_least_ms=0)
        if column is None:
            if delay_ms or late != "accept":
                raise ConfigurationError(
                    "watermark_delay= and late= need to know when rows happened; give event_time= the column's name"
                )
            return cls()
        dropped = late in ("drop", "side_output")
        return cls(EventTime(column, "drop" if dropped else "accept"), delay_ms, late if callable(late) else None)

    def check(self, df: DataFrame) -> None:
        if self.event_time is None:
            return
        kind = dict(df.dtypes).get(self.event_time.column)
        if kind not in _TIMES:
            what = "is not in the DataFrame" if kind is None else f"is of type {kind}"
            raise ConfigurationError(
                f"event_time column {self.event_time.column!r} {what}; give one of type timestamp, of {df.columns}"
            )

    def late_rows(self, df: DataFrame, watermark_ms: int | None) -> DataFrame:
        """Those that the tasks have left out."""
        return df.where(self.is_late(df, watermark_ms))

    def is_late(self, df: DataFrame, watermark_ms: int | None) -> Column:
        """Whether a row of the DataFrame is from before this watermark."""
        from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

        assert self.event_time is not None
        if watermark_ms is None:
            return F.lit(False)
        column = "`" + self.event_time.column.replace("`", "``") + "`"
        if dict(df.dtypes)[self.event_time.column] == "timestamp":
            return F.col(column) < F.timestamp_millis(F.lit(watermark_ms))
        limit = to_datetime(watermark_ms).replace(tzinfo=None).isoformat(sep=" ")
        return F.col(column) < F.expr(f"TIMESTAMP_NTZ '{limit}'")
