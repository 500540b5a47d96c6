"""``apply-count``: a running count per user, from Kafka; rows per second of whole micro-batches.

Every system reads the same topic in the same session, computes (user, total) for every user of the batch and
writes these rows nowhere; all of it counts. Spark's Python operators are too slow for batches of the full size: they
get as many users, but a tenth of the rows in a batch; in the quick version fewer users too.

The systems take turns, round by round: new records are produced, then each one's query processes them and ends. So
what else happens on the machine meets all of them. The first round only warms up; it begins with every user
once, so that the state is full when measuring begins. Later rounds leave out the first batch after a query's start.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.peers import COUNT_SCHEMA, PEERS, missing_requirement
from benchmarks.results import Report, Result
from benchmarks.session import PARTITIONS, SPARK_SETTINGS, Bench
from benchmarks.streaming import MicroBatch, rows_per_second, run_query, write_nowhere

__all__ = ["FULL", "QUICK", "Events", "Ours", "Peer", "System", "note_ratio", "run", "take_turns"]

OURS = "ours"
SLOW_SYSTEMS = ("spark-apply-pandas", "spark-tws-pandas")


@dataclass(frozen=True)
class Size:
    keys: int
    rows_per_batch: int
    warmup_batches: int
    rounds: int
    batches_per_round: int
    """That are measured."""


FULL = Size(keys=200_000, rows_per_batch=200_000, warmup_batches=10, rounds=3, batches_per_round=4)
FULL_SLOW = Size(keys=200_000, rows_per_batch=20_000, warmup_batches=1, rounds=3, batches_per_round=1)
QUICK = Size(keys=200_000, rows_per_batch=200_000, warmup_batches=6, rounds=2, batches_per_round=3)
QUICK_SLOW = Size(keys=4_000, rows_per_batch=4_000, warmup_batches=2, rounds=2, batches_per_round=1)


def run(bench: Bench, report: Report) -> None:
    size, slow_size = (QUICK, QUICK_SLOW) if bench.quick else (FULL, FULL_SLOW)
    events, few_events = Events(bench, "events", size), Events(bench, "few-events", slow_size)
    systems: list[System] = [Ours(bench, events, "hash"), Ours(bench, events, "source")]
    for name in PEERS:
        requirement = missing_requirement(name)
        if requirement is None:
            systems.append(Peer(bench, few_events if name in SLOW_SYSTEMS else events, name))
        else:
            report.note(f"{name} was left out: it needs the package {requirement}")
    take_turns(report, size.rounds, [events, few_events], systems)
    for ours in systems[:2]:
        for peer in systems[2:]:
            note_ratio(report, ours, peer)


def take_turns(report: Report, rounds: int, topics: list[Events], systems: list[System]) -> None:
    """Round by round: new records, then each system processes them; at the end the results of all."""
    for number in range(rounds + 1):
        report.say(f"round {number} of {rounds}" if number else "warming up")
        for events in topics:
            events.produce_round(number)
        # In turn from both ends, so that none is always the last.
        for system in systems if number % 2 else reversed(systems):
            batches = system.process()
            if number:
                system.measured += batches[1:]
                report.say(f"{system.label}: {rows_per_second(batches[1:]):,.0f} rows/s")
    for system in systems:
        report.add(system.result())


def note_ratio(report: Report, ours: System, peer: System) -> None:
    ratio = rows_per_second(ours.measured) / rows_per_second(peer.measured)
    report.note(f"{ours.label} is {ratio:.3g} times as fast as {peer.label}")


class Events:
    """A topic that grows from round to round. The same users in every run."""

    def __init__(self, bench: Bench, name: str, size: Size) -> None:
        self.size = size
        self._bench = bench
        self.topic = bench.create_topic(name)
        self._random = random.Random(size.keys)
        self._users = [b"user-%08d" % number for number in range(size.keys)]

    def produce_round(self, number: int) -> None:
        size = self.size
        batches = size.batches_per_round + 1
        if number == 0:
            batches = size.warmup_batches - 1
            self._bench.produce(self.topic, self._random.sample(self._users, size.keys))
        self._bench.produce(self.topic, self._random.choices(self._users, k=size.rows_per_batch * batches))

    def stream(self) -> DataFrame:
        return self._bench.events(self.topic, self.size.rows_per_batch)


class System(ABC):
    name: str
    label: str
    output_mode: str

    def __init__(self, bench: Bench, events: Events) -> None:
        self._bench = bench
        self._events = events
        self._checkpoint = bench.checkpoint(self.name)
        self.measured: list[MicroBatch] = []

    def process(self) -> list[MicroBatch]:
        """All that is new in the topic. Batches that hold only what was left over do not count."""
        stream = self.prepare(self._events.stream())
        batches = run_query(stream, self._checkpoint, self.on_batch, output_mode=self.output_mode)
        return [batch for batch in batches if batch.rows > self._events.size.rows_per_batch // 2]

    def prepare(self, events: DataFrame) -> DataFrame:
        return events

    @abstractmethod
    def on_batch(self, df: DataFrame, batch_id: int) -> None: ...

    def result(self) -> Result:
        size = self._events.size
        seconds = [batch.trigger_seconds for batch in self.measured]
        params = {
            **asdict(size),
            "partitions": PARTITIONS,
            "arrow_records_per_batch": int(SPARK_SETTINGS["spark.sql.execution.arrow.maxRecordsPerBatch"]),
            "batch_seconds": seconds,
            "median_batch_seconds": median(seconds),
            **self.details(),
        }
        shown = {
            "median batch, s": f"{median(seconds):.2f}",
            "rows in a batch": f"{size.rows_per_batch:,}",
            "keys": f"{size.keys:,}",
        }
        if "median_apply_seconds" in params:
            shown["in apply(), s"] = f"{params['median_apply_seconds']:.2f}"
        return Result(self.name, rows_per_second(self.measured), "rows/s", params, shown)

    def details(self) -> dict[str, Any]:
        return {}


class Ours(System):
    name, output_mode = OURS, "append"

    def __init__(self, bench: Bench, events: Events, variant: str) -> None:
        super().__init__(bench, events)
        self.label = f"{OURS} ({variant})"
        self._variant = variant
        self._service = bench.service(f"count-{variant}")
        self._apply_seconds: dict[int, float] = {}

    def on_batch(self, df: DataFrame, batch_id: int) -> None:
        begun = time.perf_counter()
        totals = self.totals(df, batch_id)
        self._apply_seconds[batch_id] = time.perf_counter() - begun
        write_nowhere(totals)

    def totals(self, df: DataFrame, batch_id: int) -> DataFrame:
        def count(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
            total = state.get("total", default=0) + len(rows)
            state.set("total", total)
            yield {"user_id": key, "total": total}

        return self._service.apply(
            df, batch_id, count, key="user_id", schema=COUNT_SCHEMA, partitioning=self._variant
        )

    def details(self) -> dict[str, Any]:
        seconds = [round(self._apply_seconds[batch.batch], 3) for batch in self.measured]
        return {
            "variant": self._variant,
            "partitioning": self._variant,
            "apply_seconds": seconds,
            "median_apply_seconds": median(seconds),
        }


class Peer(System):
    output_mode = "update"

    def __init__(self, bench: Bench, events: Events, name: str) -> None:
        self.name = self.label = name
        super().__init__(bench, events)

    def prepare(self, events: DataFrame) -> DataFrame:
        return PEERS[self.name](events)

    def on_batch(self, df: DataFrame, batch_id: int) -> None:
        write_nowhere(df)
