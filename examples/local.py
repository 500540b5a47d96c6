"""What every example needs to run by itself: a real Kafka, a Spark session, a scratch directory.

``python examples/sensor_averages.py`` starts them; in a pipeline of yours they are there already.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from changelog_state.broker import embedded_broker, ensure_java_home, spark_connector_jars


@dataclass(frozen=True)
class Place:
    """Where an example runs."""

    spark: SparkSession
    bootstrap_servers: str
    directory: Path
    application: str = "example"

    def send(self, topic: str, events: Iterable[Mapping[str, Any]], partitions: int = 2) -> None:
        """JSON events to a topic, which is made if it is not there."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        if topic not in admin.list_topics(timeout=10).topics:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        for event in events:
            producer.produce(topic, value=json.dumps(event))
        if producer.flush(30):
            raise SystemExit(f"{topic}: not all events arrived")

    def stream(self, topic: str, schema: str) -> DataFrame:
        """The topic's events as rows."""
        raw = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        return raw.select(F.from_json(F.col("value").cast("string"), schema).alias("event")).select("event.*")

    def process(self, stream: DataFrame, on_batch: Callable[[DataFrame, int], None]) -> None:
        """All that is there, then stop. Called again it goes on from its checkpoint."""
        query = (
            stream.writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def run(main: Callable[[Place], None]) -> None:
    """Run an example by itself; it raises SystemExit if something is not as it should be."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ensure_java_home()
    with tempfile.TemporaryDirectory(prefix="changelog-state-example-") as directory, embedded_broker() as broker:
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", ",".join(spark_connector_jars()))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            main(Place(spark, broker.bootstrap_servers, Path(directory)))
        finally:
            spark.stop()


def expect(found: Any, expected: Any) -> None:
    """The example's verdict."""
    if found != expected:
        raise SystemExit(f"not as expected:\n  found    {found}\n  expected {expected}")
    print(f"as expected: {found}")
