"""A user's DataFrame, arranged so that one task holds one state partition with the rows of a key together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from changelog_state import spark_bridge
from changelog_state.codec.keys import KeyCodec
from changelog_state.errors import ConfigurationError, InvalidKeyError, SourceModeError
from changelog_state.task.spec import PARTITION_COLUMN

__all__ = ["Arranged", "OrderBy", "arrange", "column_named", "key_codec", "row_order"]

OrderBy: TypeAlias = str | Column | Sequence[str | Column] | None
_KAFKA_COLUMNS = {"topic": "string", "partition": "int", "offset": "bigint"}


@dataclass(frozen=True)
class Arranged:
    frame: DataFrame
    columns: tuple[str, ...]
    """The names of the frame's columns, for the tasks. Spark cannot hand over names with dots: where there are any,
    the frame itself has numbers instead."""
    partition_of_task: dict[int, int] | None
    """Source mode: Spark partition → state partition."""
    topic: str | None
    by_watermark: Callable[[int | None], DataFrame] | None = None
    """What makes the frame, if it depends on the watermark before the batch."""

    def frame_at(self, watermark_ms: int | None) -> DataFrame:
        return self.frame if self.by_watermark is None else self.by_watermark(watermark_ms)


def key_codec(df: DataFrame, key_columns: Sequence[str]) -> KeyCodec:
    """How keys of these columns are encoded; says what is wrong with them if they cannot be keys."""
    types = dict(df.dtypes)
    missing = [name for name in key_columns if name not in types]
    if missing or not key_columns:
        raise InvalidKeyError(
            f"key columns {missing or list(key_columns)} are not in the DataFrame, which has {df.columns}; "
            "give key= one of these, or a list of them"
        )
    if PARTITION_COLUMN in types:
        raise ConfigurationError(f"the DataFrame has a column {PARTITION_COLUMN!r}; this name is taken: rename it")
    return KeyCodec.from_spark([types[name] for name in key_columns])


def arrange(
    df: DataFrame, key_columns: Sequence[str], partitioning: str, partitions: int, order_by: OrderBy
) -> Arranged:
    keys = [column_named(name) for name in key_columns]
    order = [*keys, *row_order(df, order_by)]
    if partitioning == "hash":
        # NOTE: the null leaves the hash as it is. Without it Spark drops this exchange after a groupBy or join on
        # the same key, and then may put several of its partitions into one task.
        frame = (
            df.withColumn(PARTITION_COLUMN, F.pmod(F.hash(*keys), F.lit(partitions)))
            .repartition(partitions, *keys, F.lit(None).cast("int"))
            .sortWithinPartitions(*order)
        )
        return _arranged(df, frame, None, None)
    if partitioning == "source":
        ranges = spark_bridge.source_ranges(df)
        topic = ranges[0].topic if ranges else None
        beyond = [found.partition for found in ranges if found.partition >= partitions]
        if beyond:
            raise SourceModeError(
                f"topic {topic} has partition {max(beyond)}, but the store has {partitions} partitions; "
                "give the store as many partitions as the topic has"
            )
        mapping = {found.spark_partition: found.partition for found in ranges}
        proof = F.col("partition") if _is_kafka(df) else F.lit(None).cast("int")
        return _arranged(df, df.withColumn(PARTITION_COLUMN, proof).sortWithinPartitions(*order), mapping, topic)
    raise ConfigurationError(f"partitioning is {partitioning!r}; use 'hash' or 'source'")


def _arranged(
    df: DataFrame, frame: DataFrame, partition_of_task: dict[int, int] | None, topic: str | None
) -> Arranged:
    columns = (*df.columns, PARTITION_COLUMN)
    if any("." in name or "`" in name for name in columns):
        frame = frame.toDF(*(f"c{number}" for number in range(len(columns))))
    return Arranged(frame, columns, partition_of_task, topic)


def row_order(df: DataFrame, order_by: OrderBy) -> list[Column]:
    """What the rows of a key are ordered by: what the user says, or else where they are in Kafka."""
    if order_by is None:
        return [F.col("partition"), F.col("offset"), F.col("topic")] if _is_kafka(df) else []
    wanted = [order_by] if isinstance(order_by, (str, Column)) else list(order_by)
    unknown = [name for name in wanted if isinstance(name, str) and name not in df.columns]
    if unknown:
        raise ConfigurationError(f"order_by columns {unknown} are not in the DataFrame, which has {df.columns}")
    return [column_named(name) if isinstance(name, str) else name for name in wanted]


def _is_kafka(df: DataFrame) -> bool:
    types = dict(df.dtypes)
    return all(types.get(name) == kind for name, kind in _KAFKA_COLUMNS.items())


def column_named(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
