"""A Spark query with state moves here, with its processor as it is: docs/guide/migrate-spark-processor.md.

First, Spark's own operator counts purchases and ends a customer's visit half an hour after the last one. Then the
query is stopped, its state is imported, and ``foreachBatch`` goes on with the same class and a copy of the
checkpoint.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pandas as pd
from local import Place, expect, run
from pyspark.sql.streaming import StatefulProcessor

import changelog_state as cs

EVENTS = "customer string, at timestamp, amount long"
RESULT = "customer string, what string, total long"
HALF_AN_HOUR_MS = 30 * 60 * 1000
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Visits(StatefulProcessor):
    """Written for Spark's operator. Nothing in it knows where it runs."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "amount long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        total = self.total.get()[0] if self.total.exists() else 0
        for frame in rows:
            total += int(frame["amount"].sum())
            end = int(frame["at"].max().timestamp() * 1000) + HALF_AN_HOUR_MS
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(end)
        self.total.update((total,))
        yield pd.DataFrame({"customer": [key[0]], "what": ["bought"], "total": [total]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        yield pd.DataFrame({"customer": [key[0]], "what": ["left"], "total": [self.total.get()[0]]})
        self.total.clear()


def main(place: Place) -> None:
    before, after = place.directory / "before", place.directory / "checkpoint"
    results: list[tuple[Any, ...]] = []

    def purchases(*given: tuple[str, str, int]) -> None:
        place.send(
            "visits-to-move", ({"customer": c, "at": f"2024-05-01T{at}:00Z", "amount": a} for c, at, a in given)
        )

    # Spark's own operator, as it has been running so far.
    place.spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    events = place.stream("visits-to-move", EVENTS).withWatermark("at", "10 minutes")
    purchases(("anna", "12:00", 5), ("ben", "12:00", 7), ("anna", "12:20", 1))
    visits = events.groupBy("customer").transformWithStateInPandas(Visits(), RESULT, "update", "EventTime")
    query = visits.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(before))
    query.trigger(availableNow=True).start().awaitTermination()
    place.spark.conf.unset("spark.sql.streaming.stateStore.providerClass")

    # From here on it runs on this library.
    service = cs.StateService(
        application=place.application,
        store="visits",
        bootstrap_servers=place.bootstrap_servers,
        partitions=2,
        state_dir=place.directory / "state",
    )

    def on_batch(df: Any, batch_id: int) -> None:
        rows = service.transform_with_state(
            df, batch_id, Visits(), key="customer", output_schema=RESULT, time_mode="EventTime"
        )
        results.extend(sorted(tuple(row) for row in rows.collect()))

    with service:
        imported = service.import_state(str(before), spark=place.spark)
        expect((dict(imported.states)["total"], imported.timers), (2, 2))
        shutil.copytree(before, after, ignore=shutil.ignore_patterns("state"))
        purchases(("anna", "12:25", 4), ("carl", "12:50", 2))
        place.process(place.stream("visits-to-move", EVENTS).withWatermark("at", "10 minutes"), on_batch)
        purchases(("carl", "13:10", 3))
        place.process(place.stream("visits-to-move", EVENTS).withWatermark("at", "10 minutes"), on_batch)
        bought = [("anna", "bought", 10), ("carl", "bought", 2), ("carl", "bought", 5)]
        # The second batch knows that it is 12:40 at least: ben has left.
        expect(results, [*bought[:2], ("ben", "left", 7), bought[2]])
        expect([customer for customer, _ in service.scan()], ["anna", "carl"])


if __name__ == "__main__":
    run(main)
