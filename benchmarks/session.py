"""What all benchmarks share: one broker, one Spark session with one set of settings, topics, a scratch directory."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

import changelog_state as cs
from changelog_state.broker import embedded_broker, ensure_java_home, spark_connector_jars

__all__ = ["PARTITIONS", "SPARK_SETTINGS", "Bench"]

PARTITIONS = 4
"""Of every topic, store, shuffle and state store."""

_STATE_STORE = "spark.sql.streaming.stateStore."
SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "3g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # Spark's own operators at their best: RocksDB, and changelogs instead of a snapshot per batch.
    _STATE_STORE + "providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    _STATE_STORE + "rocksdb.changelogCheckpointing.enabled": "true",
}


class Bench:
    """One run. ``bootstrap_servers``: use this broker instead of starting one (for child processes)."""

    def __init__(self, *, quick: bool, bootstrap_servers: str | None = None) -> None:
        self.quick = quick
        self._bootstrap_servers = bootstrap_servers
        self._stack = ExitStack()
        self._spark: SparkSession | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @cached_property
    def bootstrap_servers(self) -> str:
        if self._bootstrap_servers is not None:
            return self._bootstrap_servers
        return self._stack.enter_context(embedded_broker(heap_mb=1024)).bootstrap_servers

    @cached_property
    def directory(self) -> Path:
        """Checkpoints and state, removed at the end."""
        path = Path(tempfile.mkdtemp(prefix="changelog-state-bench-"))
        self._stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    @property
    def spark(self) -> SparkSession:
        if self._spark is None:
            # Workers must be of this interpreter, and find this package and what it uses.
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
            ensure_java_home()
            builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").appName("changelog-state-benchmarks")
            builder = builder.config("spark.jars", ",".join(spark_connector_jars()))
            builder = builder.config("spark.local.dir", str(self.directory / "spark"))
            for name, value in SPARK_SETTINGS.items():
                builder = builder.config(name, value)
            self._spark = builder.getOrCreate()
            self._spark.sparkContext.setLogLevel("OFF")
            self._stack.callback(self.stop_spark)
        return self._spark

    def stop_spark(self) -> None:
        """Give the memory back; the next use starts a new session."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def service(self, store: str, **settings: Any) -> cs.StateService:
        """A store of its own, closed (and its agent with it) at the end of the run."""
        name = f"{store}-{uuid.uuid4().hex[:6]}"
        defaults: dict[str, Any] = {
            "application": "bench",
            "store": name,
            "bootstrap_servers": self.bootstrap_servers,
            "partitions": PARTITIONS,
            "state_dir": self.directory / "state" / name,
        }
        service = cs.StateService(**(defaults | settings))
        self._stack.callback(service.close)
        return service

    def checkpoint(self, system: str) -> str:
        return str(self.directory / f"checkpoint-{system}-{uuid.uuid4().hex[:6]}")

    def create_topic(self, name: str) -> str:
        topic = f"bench-{name}-{uuid.uuid4().hex[:6]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        return topic

    def produce(self, topic: str, keys: Iterable[bytes]) -> None:
        """One record per key, in this order, partitioned as Java producers do."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 2_000_000,
            }
        )
        for key in keys:
            while True:
                try:
                    producer.produce(topic, key=key, value=b"1")
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(60):
            raise RuntimeError(f"{len(producer)} records did not arrive in {topic}")

    def events(self, topic: str, rows_per_batch: int) -> DataFrame:
        """The topic as a stream of user ids, about so many rows per micro-batch."""
        return (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", rows_per_batch)
            # At the end of a topic that nobody writes to, a consumer's next request is held back for this long, and
            # with it the batch that comes then: 0.5 s unless it is told otherwise.
            .option("kafka.fetch.max.wait.ms", 10)
            .load()
            .selectExpr("CAST(key AS STRING) AS user_id")
        )
