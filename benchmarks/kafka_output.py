"""``kafka-output``: ``apply-count`` with its result rows in a topic; rows per second of whole micro-batches.

Ours with ``output_topic=``, in both formats, beside the same batch whose result Spark's own sink writes to a topic
(each row at least once), and beside the same batch without a topic. They take turns as in ``apply-count``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

import changelog_state as cs
from benchmarks.apply_count import Events, Ours, Size
from benchmarks.peers import COUNT_SCHEMA
from benchmarks.results import Report
from benchmarks.session import Bench
from benchmarks.streaming import rows_per_second

__all__ = ["run"]

FULL = Size(keys=200_000, rows_per_batch=200_000, warmup_batches=8, rounds=3, batches_per_round=3)
QUICK = Size(keys=200_000, rows_per_batch=200_000, warmup_batches=5, rounds=2, batches_per_round=2)


def run(bench: Bench, report: Report) -> None:
    events = Events(bench, "events", QUICK if bench.quick else FULL)
    systems = [
        WithTopic(bench, events, "none"),
        WithTopic(bench, events, "json"),
        WithTopic(bench, events, "avro"),
        SparksSink(bench, events, "sparks-sink"),
    ]
    for number in range(events.size.rounds + 1):
        report.say(f"round {number} of {events.size.rounds}" if number else "warming up")
        events.produce_round(number)
        for system in systems if number % 2 else reversed(systems):
            batches = system.process()
            if number:
                system.measured += batches[1:]
                report.say(f"{system.label}: {rows_per_second(batches[1:]):,.0f} rows/s")
    for system in systems:
        report.add(system.result())
    alone = rows_per_second(systems[0].measured)
    for system in systems[1:]:
        report.note(
            f"{system.label} runs at {rows_per_second(system.measured) / alone:.0%} of the speed without a topic"
        )


class WithTopic(Ours):
    def __init__(self, bench: Bench, events: Events, variant: str) -> None:
        super().__init__(bench, events, variant)
        self.topic = bench.create_topic("totals")
        outputs: dict[str, Any] = {"json": self.topic, "avro": cs.KafkaOutput(self.topic, format="avro")}
        self._output = outputs.get(variant)

    def totals(self, df: DataFrame, batch_id: int) -> DataFrame:
        def count(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
            total = state.get("total", default=0) + len(rows)
            state.set("total", total)
            yield {"user_id": key, "total": total}

        return self._service.apply(df, batch_id, count, key="user_id", schema=COUNT_SCHEMA, output_topic=self._output)

    def details(self) -> dict[str, Any]:
        return {**super().details(), "partitioning": "hash"}


class SparksSink(WithTopic):
    def on_batch(self, df: DataFrame, batch_id: int) -> None:
        begun = time.perf_counter()
        totals = self.totals(df, batch_id)
        self._apply_seconds[batch_id] = time.perf_counter() - begun
        (
            totals.selectExpr("user_id AS key", "to_json(struct(*)) AS value")
            .write.format("kafka")
            .option("kafka.bootstrap.servers", self._bench.bootstrap_servers)
            .option("kafka.compression.type", "lz4")
            .option("topic", self.topic)
            .save()
        )
