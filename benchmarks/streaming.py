"""Runs a streaming query over a topic and tells how long each micro-batch took, in one way for all systems."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

__all__ = ["MicroBatch", "quantile", "rows_per_second", "run_query", "write_nowhere"]


@dataclass(frozen=True)
class MicroBatch:
    batch: int
    rows: int
    trigger_seconds: float
    """All of it: planning, offset log, function, commit log."""


def run_query(
    stream: DataFrame,
    checkpoint: str,
    function: Callable[[DataFrame, int], None],
    *,
    output_mode: str = "append",
) -> list[MicroBatch]:
    """Process all there is, and return the micro-batches that had rows, as Spark's own progress reports them."""
    query = (
        stream.writeStream.foreachBatch(function)
        .outputMode(output_mode)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = []
    for reported in query.recentProgress:
        progress = json.loads(reported.json)
        [source] = progress["sources"]
        # Not numInputRows: that counts a row as often as it is read.
        rows = _records(source["endOffset"]) - _records(source["startOffset"])
        seconds = progress["durationMs"]["triggerExecution"] / 1000
        if rows and seconds:
            batches.append(MicroBatch(progress["batchId"], rows, seconds))
    return batches


def rows_per_second(batches: Sequence[MicroBatch]) -> float:
    """Over all of the time, so that a batch which had to wait for a compaction counts too."""
    return sum(batch.rows for batch in batches) / sum(batch.trigger_seconds for batch in batches)


def quantile(values: Sequence[float], q: float) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[round(q * 100) - 1]


def write_nowhere(df: DataFrame) -> None:
    """Compute every row and column of a result, as a sink would."""
    df.write.format("noop").mode("append").save()


def _records(offsets: dict[str, dict[str, int]] | None) -> int:
    """All offsets of a Kafka source's position; None before the first batch."""
    return sum(sum(partitions.values()) for partitions in (offsets or {}).values())
