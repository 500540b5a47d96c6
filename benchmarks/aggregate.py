"""``aggregate``: a running count per user without a function of Python, against Spark's aggregation in the JVM.

The workload, the turns and the way of counting are those of ``apply-count``.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

import changelog_state as cs
from benchmarks.apply_count import FULL, QUICK, Events, Ours, Peer, System, note_ratio, take_turns
from benchmarks.results import Report
from benchmarks.session import Bench

__all__ = ["run"]


def run(bench: Bench, report: Report) -> None:
    size = QUICK if bench.quick else FULL
    events = Events(bench, "events", size)
    ours, peer = Aggregation(bench, events, "aggregate"), Peer(bench, events, "spark-jvm-agg")
    systems: list[System] = [ours, peer]
    take_turns(report, size.rounds, [events], systems)
    note_ratio(report, ours, peer)


class Aggregation(Ours):
    def totals(self, df: DataFrame, batch_id: int) -> DataFrame:
        return self._service.aggregate(df, batch_id, key="user_id", aggs={"total": cs.count()})

    def details(self) -> dict[str, Any]:
        return {**super().details(), "partitioning": "hash"}
