"""The user's side of the demo: running totals per user, as anyone would write them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from changelog_state.broker import ensure_java_home, spark_connector_jars
from changelog_state.service import StateService
from changelog_state.state.handle import State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["OUTPUT_SCHEMA", "Job", "batch_directory", "running_total", "spark_session", "start_query"]

PURCHASE_SCHEMA = "user_id string, cents long"
_SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""Compiling well does not pay off in a minute: with this Spark needs half the CPU time until its first batch."""
OUTPUT_SCHEMA = "user_id string, bought long, spent_cents long, total_cents long"


@dataclass(frozen=True)
class Job:
    """What the driver's process needs to know; travels as JSON."""

    application: str
    store: str
    bootstrap_servers: str
    input_topic: str
    partitions: int
    state_dir: str
    checkpoint: str
    outputs: str
    scratch: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))

    def service(self) -> StateService:
        return StateService(
            application=self.application,
            store=self.store,
            bootstrap_servers=self.bootstrap_servers,
            partitions=self.partitions,
            state_dir=self.state_dir,
        )


def running_total(user_id: str, rows: list[dict[str, Any]], state: State) -> Iterator[dict[str, Any]]:
    """Once per user and batch. Money is in whole cents, so that sums are exact."""
    spent_cents = sum(row["cents"] for row in rows)
    total_cents = state.get("total_cents", default=0) + spent_cents
    state.set("total_cents", total_cents)
    state.set("purchases", state.get("purchases", default=0) + len(rows))
    yield {"user_id": user_id, "bought": len(rows), "spent_cents": spent_cents, "total_cents": total_cents}


def start_query(
    spark: SparkSession, job: Job, service: StateService, on_done: Callable[[int, Path, float], None]
) -> StreamingQuery:
    from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

    purchases = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("subscribe", job.input_topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.from_json(F.col("value").cast("string"), PURCHASE_SCHEMA).alias("purchase"))
        .select("purchase.*")
    )

    def on_batch(df: DataFrame, batch_id: int) -> None:
        begun = time.monotonic()
        totals = service.apply(df, batch_id, running_total, key="user_id", schema=OUTPUT_SCHEMA)
        # A directory per batch, overwritten: when Spark repeats a batch, its rows are still there once.
        directory = batch_directory(job.outputs, batch_id)
        totals.write.mode("overwrite").parquet(str(directory))
        on_done(batch_id, directory, time.monotonic() - begun)

    return (
        purchases.writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", job.checkpoint)
        .trigger(processingTime="500 milliseconds")
        .start()
    )


def batch_directory(outputs: str | Path, batch_id: int) -> Path:
    return Path(outputs) / f"batch={batch_id:06d}"


def spark_session(job: Job) -> SparkSession:
    """A local Spark whose temporary files go where the demo will find them after a kill."""
    from pyspark.sql import SparkSession

    ensure_java_home()
    tasks_at_once = max(1, min(os.cpu_count() or 1, job.partitions))
    return (
        SparkSession.builder.master(f"local[{tasks_at_once}]")
        .appName("changelog-state demo")
        .config("spark.jars", ",".join(spark_connector_jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(job.partitions))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", job.scratch)
        .config("spark.sql.warehouse.dir", f"{job.scratch}/warehouse")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={job.scratch} {_SHORT_LIVED_JVM}")
        .getOrCreate()
    )
