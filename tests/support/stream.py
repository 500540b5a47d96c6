"""A small streaming job over a real topic, with the truth per batch kept beside what the job put out."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

import changelog_state as cs

SCHEMA = "user_id string, total long"
PARTITIONS = 4


def count(key: str, rows: list[dict[str, Any]], state: cs.State) -> Iterable[dict[str, Any]]:
    total = state.get("total", default=0) + len(rows)
    state.set("total", total)
    yield {"user_id": key, "total": total}


def count_here(key: str, rows: list[dict[str, Any]], state: cs.State) -> Iterable[dict[str, Any]]:
    """Leaves beside the count on which node it was made."""
    state.set("node", os.environ.get("CHANGELOG_STATE_DIR", ""))
    return count(key, rows, state)


class Input:
    """A topic that tests write users to, one event each."""

    def __init__(self, bootstrap_servers: str, partitions: int = PARTITIONS) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = f"input-{uuid.uuid4().hex[:10]}"
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        admin.create_topics([NewTopic(self.topic, partitions, 1)])[self.topic].result(15)
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})

    @classmethod
    def existing(cls, bootstrap_servers: str, topic: str) -> Input:
        """To be read only."""
        found = cls.__new__(cls)
        found.bootstrap_servers, found.topic = bootstrap_servers, topic
        return found

    def send(self, users: Iterable[str]) -> None:
        for number, user in enumerate(users):
            self._producer.produce(self.topic, key=user, value=str(number))
        assert self._producer.flush(30) == 0

    def frame(self, spark: SparkSession, **options: Any) -> DataFrame:
        reader = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
        )
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()


class Job:
    """Counts events per user. ``outputs`` has what each execution of a batch returned, ``truth`` its input."""

    def __init__(
        self,
        spark: SparkSession,
        source: Input,
        checkpoint: Path,
        *,
        partitioning: str = "hash",
        function: Callable[..., Any] = count,
        rows_per_batch: int = 200,
        output_topic: str | None = None,
    ) -> None:
        self.spark = spark
        self.source = source
        self.checkpoint = checkpoint
        self.partitioning = partitioning
        self.function = function
        self.rows_per_batch = rows_per_batch
        self.output_topic = output_topic
        self.outputs: dict[int, list[dict[str, int]]] = {}
        self.truth: dict[int, Counter[str]] = {}
        self.before_apply: Callable[[int], None] = lambda batch: None
        self.after_sink: Callable[[int], None] = lambda batch: None

    def start(self, service: cs.StateService) -> StreamingQuery:
        def on_batch(df: DataFrame, batch: int) -> None:
            self.truth[batch] = Counter(row["user_id"] for row in df.select("user_id").collect())
            self.before_apply(batch)
            result = service.apply(
                df,
                batch,
                self.function,
                key="user_id",
                schema=SCHEMA,
                partitioning=self.partitioning,
                output_topic=self.output_topic,
            )
            rows = [(row["user_id"], row["total"]) for row in result.collect()]
            assert len(rows) == len(dict(rows)), f"batch {batch}: a key came out twice"
            self.outputs.setdefault(batch, []).append(dict(rows))
            self.after_sink(batch)

        frame = self.source.frame(self.spark, maxOffsetsPerTrigger=self.rows_per_batch).withColumn(
            "user_id", F.col("key").cast("string")
        )
        return (
            frame.writeStream.foreachBatch(on_batch)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, service: cs.StateService) -> None:
        """Process everything that is there; raises what the query died of."""
        self.start(service).awaitTermination(120)

    def check(self, service: cs.StateService, users: Iterable[str]) -> None:
        """State and every output of every batch are those of an undisturbed run."""
        totals: Counter[str] = Counter()
        for batch in sorted(self.truth):
            totals.update(self.truth[batch])
            expected = {user: totals[user] for user in self.truth[batch]}
            assert self.outputs[batch], f"batch {batch} put nothing out"
            for output in self.outputs[batch]:
                assert output == expected, f"batch {batch}"
        assert totals == Counter(users)
        assert {key: values["total"] for key, values in service.scan()} == dict(totals)
