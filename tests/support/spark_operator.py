"""Spark's own transformWithStateInPandas over given batches: what it put out, and when."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["OperatorRun", "run_operator"]

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class OperatorRun:
    outputs: list[list[tuple[Any, ...]]]
    """Per batch, sorted."""
    times_ms: list[int]
    watermarks_ms: list[int]
    """Before each batch."""
    checkpoint: Path
    input: Path
    """A directory with a file per batch."""


def run_operator(
    spark: Any,
    directory: Path,
    batches: Sequence[Sequence[Mapping[str, Any]]],
    schema: str,
    transform: Any,
) -> OperatorRun:
    """``transform``: from the stream to the operator's output."""
    directory.mkdir(parents=True)
    source, checkpoint = directory / "input", directory / "checkpoint"
    write_input(source, batches)
    outputs: list[list[tuple[Any, ...]]] = []
    done = threading.Event()

    def take(df: Any, batch_id: int) -> None:
        rows = sorted(tuple(row) for row in df.collect())
        if batch_id < len(batches):
            outputs.append(rows)
        if batch_id >= len(batches):  # so that the batches before it are committed; by processing time it never ends
            done.set()

    with settings(
        spark, {"spark.sql.streaming.stateStore.providerClass": _ROCKSDB, "spark.sql.shuffle.partitions": 2}
    ):
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(source))
        writer = transform(stream).writeStream.outputMode("update").foreachBatch(take)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            while query.isActive and not done.wait(0.05) and not _is_through(query, len(batches)):
                pass
        finally:
            query.stop()
    assert query.exception() is None, query.exception()
    offsets = [_json(checkpoint / "offsets" / str(number)) for number in range(len(batches))]
    times = [each["batchTimestampMs"] for each in offsets]
    return OperatorRun(outputs, times, [each["batchWatermarkMs"] for each in offsets], checkpoint, source)


def write_input(source: Path, batches: Sequence[Sequence[Mapping[str, Any]]], first: int = 0) -> None:
    """A file per batch, in the order of their times."""
    source.mkdir(exist_ok=True)
    for number, rows in enumerate(batches, first):
        path = source / f"{number:04}.json"
        path.write_text("\n".join(json.dumps(row, default=lambda at: at.isoformat()) for row in rows))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


@contextmanager
def settings(spark: Any, wanted: Mapping[str, Any]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def _is_through(query: Any, batches: int) -> bool:
    """Without processing time Spark makes no more batches than there is something to do for."""
    last = query.lastProgress
    return last is not None and last["batchId"] >= batches - 1 and not query.status["isTriggerActive"]


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text().splitlines()[1])
    return found
