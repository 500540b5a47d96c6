"""``apply-count``: a running count per user, from Kafka; rows per second of whole micro-batches.

Every system reads the same kind of topic in the same session, computes (user, total) for every user of the batch
and writes these rows nowhere; all of it counts. The first batch holds every user once, so that the state is full
when measuring begins. Spark's Python operators are too slow for the full size: they get fewer users and rows, in the
same proportion.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.peers import COUNT_SCHEMA, PEERS, missing_requirement
from benchmarks.results import Report, Result
from benchmarks.session import PARTITIONS, SPARK_SETTINGS, Bench
from benchmarks.streaming import MicroBatch, rows_per_second, run_query, write_nowhere

__all__ = ["run"]

OURS = "ours"


@dataclass(frozen=True)
class Size:
    keys: int
    rows_per_batch: int
    warmup_batches: int
    """The first of them holds every key once."""
    batches: int


FULL = Size(keys=200_000, rows_per_batch=200_000, warmup_batches=4, batches=8)
FULL_SLOW = Size(keys=10_000, rows_per_batch=10_000, warmup_batches=2, batches=3)
QUICK = Size(keys=200_000, rows_per_batch=200_000, warmup_batches=3, batches=4)
QUICK_SLOW = Size(keys=4_000, rows_per_batch=4_000, warmup_batches=1, batches=2)
SLOW_SYSTEMS = ("spark-apply-pandas", "spark-tws-pandas")


def run(bench: Bench, report: Report) -> None:
    size, slow = (QUICK, QUICK_SLOW) if bench.quick else (FULL, FULL_SLOW)
    report.say(f"producing {size.rows_per_batch * (size.warmup_batches + size.batches):,} records")
    topic = bench.produce("events", user_ids(size))
    slow_topic = bench.produce("few-events", user_ids(slow))
    measured: dict[str, float] = {}

    def measure(
        name: str, size: Size, once: Callable[[], tuple[list[MicroBatch], dict[str, Any]]], **params: Any
    ) -> None:
        batches, details = once()
        steady = batches[size.warmup_batches :]
        if not steady:
            raise RuntimeError(f"{name}: only {len(batches)} batches, {size.warmup_batches} of them to warm up")
        value = rows_per_second(steady)
        measured[" ".join([name, *params.values()])] = value
        seconds = [batch.trigger_seconds for batch in steady]
        params |= details | {
            **asdict(size),
            "partitions": PARTITIONS,
            "batch_seconds": [round(s, 3) for s in seconds],
            "median_batch_seconds": round(statistics.median(seconds), 3),
            "arrow_records_per_batch": int(SPARK_SETTINGS["spark.sql.execution.arrow.maxRecordsPerBatch"]),
        }
        shown = {"rows/batch": f"{size.rows_per_batch:,}", "keys": f"{size.keys:,}"}
        shown["batch, median s"] = f"{statistics.median(seconds):.2f}"
        if "function_median_seconds" in details:
            shown["in apply, median s"] = f"{details['function_median_seconds']:.2f}"
        report.add(Result(name, value, "rows/s", params, shown))

    for partitioning in ("hash", "source"):
        once = partial(_ours, bench, topic, size, partitioning)
        measure(OURS, size, once, variant=partitioning)
    for system in PEERS:
        requirement = missing_requirement(system)
        if requirement is not None:
            report.note(f"{system} was left out: it needs the package {requirement}")
            continue
        its_size, its_topic = (slow, slow_topic) if system in SLOW_SYSTEMS else (size, topic)
        measure(system, its_size, partial(_peer, bench, system, its_topic, its_size))
    ours = measured[f"{OURS} hash"]
    for system in PEERS:
        if system in measured:
            report.note(f"ours (hash) / {system}: {ours / measured[system]:.2f}")


def user_ids(size: Size) -> Iterator[bytes]:
    """Every user once, then users at random; the same ones in every run."""
    rng = random.Random(size.keys)
    users = [b"user-%08d" % number for number in range(size.keys)]
    rng.shuffle(users)
    yield from users[: size.rows_per_batch]
    yield from rng.choices(users, k=size.rows_per_batch * (size.warmup_batches + size.batches - 1))


def _ours(bench: Bench, topic: str, size: Size, partitioning: str) -> tuple[list[MicroBatch], dict[str, Any]]:
    service = bench.service(f"count-{partitioning}")
    apply_seconds: list[float] = []

    def count(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
        total = state.get("total", default=0) + len(rows)
        state.set("total", total)
        yield {"user_id": key, "total": total}

    def on_batch(df: DataFrame, batch_id: int) -> None:
        begun = time.perf_counter()
        totals = service.apply(df, batch_id, count, key="user_id", schema=COUNT_SCHEMA, partitioning=partitioning)
        apply_seconds.append(time.perf_counter() - begun)
        write_nowhere(totals)

    batches = run_query(bench, OURS, bench.events(topic, size.rows_per_batch), on_batch)
    service.close()
    steady = apply_seconds[size.warmup_batches :]
    return batches, {
        "function_median_seconds": round(statistics.median(steady), 3),
        "function_seconds": [round(s, 3) for s in steady],
    }


def _peer(bench: Bench, system: str, topic: str, size: Size) -> tuple[list[MicroBatch], dict[str, Any]]:
    stream = PEERS[system](bench.events(topic, size.rows_per_batch))

    def on_batch(df: DataFrame, batch_id: int) -> None:
        write_nowhere(df)

    return run_query(bench, system, stream, on_batch, output_mode="update"), {}
