"""``small-batch``: what a batch of 100 rows costs inside the foreachBatch function, with state and without.

One query, whose batches take turns: ``ours``, then ``spark-no-state``, the same arrangement of the rows with an
identity ``mapInArrow``, persisted and collected in the same way. So noise meets both alike. The same once more in
another process with the tuning of workers switched off, for both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from benchmarks.peers import COUNT_SCHEMA
from benchmarks.results import Report, Result
from benchmarks.session import PARTITIONS, Bench
from benchmarks.streaming import quantile, run_query
from changelog_state.arrangement import arrange
from changelog_state.task.worker_tuning import SWITCH, tune_worker

__all__ = ["run"]

ROWS = 100
USERS = 1_000
SYSTEMS = ("ours", "spark-no-state")
_SETTINGS = "BENCHMARKS_SMALL_BATCH"


@dataclass(frozen=True)
class Times:
    """Milliseconds, one entry per measured batch."""

    function: list[float]
    """Until the state is changed and the result is held: apply(), or persist and collect."""
    result: list[float]
    """Reading the result's rows afterwards."""


def run(bench: Bench, report: Report) -> None:
    warmup, batches = (15, 25) if bench.quick else (20, 60)
    topic = bench.create_topic("small")
    bench.produce(topic, (b"user-%05d" % (n % USERS) for n in range(ROWS * 2 * (warmup + batches))))
    tuned = _measure(bench, topic, warmup)
    bench.stop_spark()  # Not two sessions at a time on one machine.
    report.say("once more without the tuning, in a process of its own")
    untuned = _measure_in_child(bench, topic, warmup)
    for variant, times in (("tuned", tuned), ("untuned", untuned)):
        adds = median(times["ours"].function) - median(times["spark-no-state"].function)
        for system in SYSTEMS:
            _add(report, system, variant, times[system], adds if system == "ours" else None, warmup)
        report.note(f"{variant}: state adds {adds:.0f} ms to the median batch")


def _add(report: Report, system: str, variant: str, times: Times, state_adds_ms: float | None, warmup: int) -> None:
    with_result = [sum(pair) for pair in zip(times.function, times.result, strict=True)]
    params: dict[str, Any] = {
        "variant": variant,
        "partitioning": "hash",
        "rows_per_batch": ROWS,
        "keys": USERS,
        "partitions": PARTITIONS,
        "warmup_batches": warmup,
        "batches": len(times.function),
        "p90_ms": round(quantile(times.function, 0.9), 1),
        "with_result_read_ms": round(median(with_result), 1),
    }
    shown = {"p90": f"{params['p90_ms']:.0f}", "with the result read": f"{params['with_result_read_ms']:.0f}"}
    if state_adds_ms is not None:
        params["state_adds_ms"] = round(state_adds_ms, 1)
        shown["state adds"] = f"{state_adds_ms:.0f}"
    report.add(Result(system, median(times.function), "ms", params, shown))


def _measure(bench: Bench, topic: str, warmup: int) -> dict[str, Times]:
    service = bench.service("small")
    taken: dict[str, list[tuple[float, float]]] = {system: [] for system in SYSTEMS}
    previous: list[DataFrame] = []

    def count(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
        total = state.get("total", default=0) + len(rows)
        state.set("total", total)
        yield {"user_id": key, "total": total}

    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_worker()
        for batch in batches:
            yield pa.record_batch([batch.column(0), pa.nulls(batch.num_rows, pa.int64())], names=["user_id", "total"])

    def with_state(df: DataFrame, batch_id: int) -> DataFrame:
        return service.apply(df, batch_id, count, key="user_id", schema=COUNT_SCHEMA)

    def without_state(df: DataFrame, batch_id: int) -> DataFrame:
        arranged = arrange(df, ("user_id",), "hash", PARTITIONS, None)
        result = arranged.frame.mapInArrow(identity, COUNT_SCHEMA)
        result.persist(StorageLevel.MEMORY_AND_DISK)
        # As few rows as there are tickets: none.
        result.where(F.col("total").isNotNull()).select("total").collect()
        while previous:
            previous.pop().unpersist()
        previous.append(result)
        return result

    def on_batch(df: DataFrame, batch_id: int) -> None:
        system = SYSTEMS[batch_id % 2]
        begun = time.perf_counter()
        result = (with_state if system == "ours" else without_state)(df, batch_id)
        done = time.perf_counter()
        result.collect()
        taken[system].append((done - begun, time.perf_counter() - done))

    run_query(bench.events(topic, ROWS), bench.checkpoint("small"), on_batch)
    service.close()
    # The last batch may hold only what was left over, and the first system then has one more.
    last = min(map(len, taken.values()))
    return {
        system: Times([f * 1000 for f, _ in pairs[warmup:last]], [r * 1000 for _, r in pairs[warmup:last]])
        for system, pairs in taken.items()
    }


def _measure_in_child(bench: Bench, topic: str, warmup: int) -> dict[str, Times]:
    """Workers inherit the switch from the process that starts Spark, so it needs one of its own."""
    settings = {
        "bootstrap_servers": bench.bootstrap_servers,
        "topic": topic,
        "warmup": warmup,
        "quick": bench.quick,
    }
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.small_batch"],
        env={**os.environ, SWITCH: "0", _SETTINGS: json.dumps(settings)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(child.stdout.strip().splitlines()[-1])
    return {system: Times(**times) for system, times in found.items()}


def _child() -> None:
    settings = json.loads(os.environ[_SETTINGS])
    with Bench(quick=settings["quick"], bootstrap_servers=settings["bootstrap_servers"]) as bench:
        times = _measure(bench, settings["topic"], settings["warmup"])
    print(json.dumps({system: vars(found) for system, found in times.items()}))


if __name__ == "__main__":
    _child()
