"""Aggregates in windows of event time, against sums over all rows that were not too late."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

import changelog_state as cs
from tests.support.output_topic import OutputTopic

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
DELAY, GRACE = 5, 3
KINDS: dict[str, Any] = {
    "tumbling": cs.Tumbling("10 minutes", grace="3 minutes"),
    "hopping": cs.Hopping("10 minutes", every="4 minutes", offset="1 minute", grace="3 minutes"),
}
Row = tuple[str, int, int]
"""Key, minutes behind noon, amount."""


def starts_of(kind: str, minute: int) -> list[int]:
    base = int(NOON.timestamp()) // 60
    every, offset = (10, 0) if kind == "tumbling" else (4, 1)
    return [start for start in range(minute - 9, minute + 1) if (base + start - offset) % every == 0]


class Model:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.open: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.watermark: int | None = None
        self.late = 0

    def batch(self, rows: list[Row]) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """What was updated, and what was closed."""
        touched = set()
        before = self.watermark
        for key, minute, amount in rows:
            for start in starts_of(self.kind, minute):
                if before is not None and start + 10 + GRACE <= before:
                    self.late += 1
                else:
                    self.open[key, start].append(amount)
                    touched.add((key, start))
        over = [each for each in self.open if before is not None and each[1] + 10 + GRACE <= before]
        updated = {each: self.result(each) for each in touched}
        closed = {each: self.result(each) for each in over}
        for each in over:
            del self.open[each]
        if rows:
            reached = max(minute for _, minute, _ in rows) - DELAY
            self.watermark = reached if before is None else max(before, reached)
        return updated, closed

    def result(self, each: tuple[str, int]) -> tuple[int, int]:
        return len(self.open[each]), sum(self.open[each])


def frame(spark: Any, rows: list[Row]) -> Any:
    times = [(key, NOON + timedelta(minutes=minute), amount) for key, minute, amount in rows]
    return spark.createDataFrame(times, "key string, at timestamp, amount long")


def run(service: cs.StateService, spark: Any, batch: int, rows: list[Row], kind: str, emit: Any) -> dict[Any, Any]:
    found = service.aggregate(
        frame(spark, rows),
        batch,
        key="key",
        aggs={"n": cs.count(), "total": cs.sum("amount")},
        window=KINDS[kind],
        emit=emit,
        event_time="at",
        watermark_delay=timedelta(minutes=DELAY),
    ).selectExpr("key", "unix_millis(window.start) AS start", "unix_millis(window.end) AS end", "n", "total")
    results = {}
    for row in found.collect():
        assert row["end"] - row["start"] == 600_000
        results[row["key"], (row["start"] // 1000 - int(NOON.timestamp())) // 60] = row["n"], row["total"]
    return results


@pytest.mark.parametrize(("kind", "emit"), [("tumbling", "close"), ("hopping", "update")])
def test_windows_equal_sums_over_all_rows(kind: str, emit: Any, spark: Any, make_service: Any) -> None:
    rng, model, service = random.Random(7), Model(kind), make_service(partitions=2)
    late = 0
    for batch in range(6):
        now = 9 * batch
        rows = [(rng.choice("abc"), now + rng.randint(-25, 9), rng.randint(1, 9)) for _ in range(12)]
        updated, closed = model.batch(rows)
        found = run(service, spark, batch, rows, kind, emit)
        assert found == (closed if emit == "close" else updated)
        late += service.last_batch.late_rows
        assert service.last_batch.rows == len(rows)
        if batch == 4:  # another driver has the same batch again
            service.close()
            service = make_service(partitions=2)
            assert run(service, spark, batch, rows, kind, emit) == found
    assert late == model.late > 0
    # Everything is over, and nothing is left of it.
    model.batch([("z", 500, 1)])
    run(service, spark, 6, [("z", 500, 1)], kind, emit)
    _, closed = model.batch([])
    assert run(service, spark, 7, [], kind, emit) == (closed if emit == "close" else {})
    minutes = sorted((key[1] // 1000 - int(NOON.timestamp())) // 60 for key, _ in service.scan())
    assert minutes == sorted(starts_of(kind, 500))


def test_rows_without_a_time_and_rows_for_a_topic(spark: Any, broker: Any, make_service: Any) -> None:
    service, topic = make_service(partitions=2), OutputTopic(broker.bootstrap_servers)
    rows = frame(spark, [("a", 1, 1), ("b", 11, 1)])
    without = rows.selectExpr("key", "nullif(at, at) AS at", "amount").where("key = 'b'")
    options: dict[str, Any] = {
        "key": "key",
        "aggs": {"n": cs.count()},
        "window": KINDS["hopping"],
        "event_time": "at",
    }
    with pytest.raises(cs.InvalidInputError, match="event time 'at' is null in 1 rows"):
        service.aggregate(rows.union(without), 0, **options)
    assert list(service.scan()) == []
    found = service.aggregate(rows, 0, **options, output_topic=topic.name)
    assert sorted(key for key, _ in topic.rows()) == sorted(row["key"] for row in found.collect())
    assert {json.loads(value)["n"] for _, value in topic.rows()} == {1}


def test_what_windows_of_aggregates_cannot_be(spark: Any, make_service: Any) -> None:
    service = make_service()
    for options, match in (
        ({"window": cs.Sliding("5 minutes"), "event_time": "at"}, "not Sliding; use apply_windows"),
        ({"window": cs.Session("5 minutes", merge=print), "event_time": "at"}, "leave out Session"),
        ({"window": "5 minutes", "event_time": "at"}, "window is '5 minutes'"),
        ({"window": cs.Session("5 minutes"), "event_time": "at", "aggs": {}}, "aggs is empty"),
        (
            {"window": cs.Session("5 minutes"), "event_time": "at", "aggs": {"window": cs.count()}},
            "aggregate 'window'",
        ),
        ({"window": cs.Tumbling("5 minutes")}, "give event_time="),
        ({"window": cs.Tumbling("5 minutes"), "event_time": "at", "late": "side_output"}, "late is 'side_output'"),
        ({"window": cs.Tumbling("5 minutes"), "event_time": "at", "emit": "never"}, "emit is 'never'"),
    ):
        with pytest.raises(cs.ConfigurationError, match=match):
            service.aggregate(frame(spark, [("a", 1, 1)]), 0, **{"key": "key", "aggs": {"n": cs.count()}, **options})


# -- sessions, against those of functions -----------------------------------------------------------------


def add(key: Any, window: Any, rows: list[Any], state: Any) -> None:
    amounts = [row["amount"] for row in rows]
    state.set("n", state.get("n", 0) + len(rows))
    state.set("total", state.get("total", 0) + sum(amounts))
    state.set("top", sorted([*state.get("top", []), *amounts])[-2:])


def add_and_tell(key: Any, window: Any, rows: list[Any], state: Any) -> Any:
    add(key, window, rows, state)
    yield result(key, window, state)


def on_close(key: Any, window: Any, state: Any) -> Any:
    yield result(key, window, state)


def merge(key: Any, state: Any, other: Any) -> None:
    state.set("n", state.get("n") + other.get("n"))
    state.set("total", state.get("total") + other.get("total"))
    state.set("top", sorted([*state.get("top"), *other.get("top")])[-2:])


def result(key: Any, window: Any, state: Any) -> dict[str, Any]:
    of_state = {name: state.get(name) for name in ("n", "total", "top")}
    return {"key": key[0], "shop": key[1], "start": window.start_ms, "end": window.end_ms, **of_state}


AGGREGATES = {"n": cs.count(), "total": cs.sum("amount"), "top": cs.collect("amount", 2, by="amount")}


@pytest.mark.parametrize("emit", ["update", "close"])
def test_sessions_are_those_of_functions(emit: Any, spark: Any, make_service: Any) -> None:
    rng = random.Random(f"sessions {emit}")
    gap, grace = timedelta(minutes=4), timedelta(minutes=GRACE)
    options: dict[str, Any] = {"key": ["key", "shop"], "emit": emit, "event_time": "at"}
    options["watermark_delay"] = timedelta(minutes=DELAY)
    ours, theirs = make_service(partitions=2, store="sums"), make_service(partitions=2, store="functions")

    def aggregated(df: Any, batch: int) -> list[Any]:
        found = ours.aggregate(df, batch, aggs=AGGREGATES, window=cs.Session(gap, grace=grace), **options)
        bounds = ("unix_millis(window.start)", "unix_millis(window.end)")
        return sorted(map(tuple, found.selectExpr("key", "shop", *bounds, *AGGREGATES).collect()))

    late = 0
    for batch in range(9):
        rows = [(rng.choice("abc"), 8 * batch + rng.randint(-25, 9), rng.randint(-9, 9)) for _ in range(10)]
        rows = [] if batch == 5 else rows if batch < 7 else [("z", 500, 1)]
        df = frame(spark, rows).selectExpr("key", "hash(key) % 2 AS shop", "at", "amount")
        expected = theirs.apply_windows(
            df,
            batch,
            add if emit == "close" else add_and_tell,
            window=cs.Session(gap, merge=merge, grace=grace),
            schema="key string, shop int, start long, end long, n long, total long, top array<long>",
            on_close=on_close if emit == "close" else None,
            late="drop",
            **options,
        )
        found = aggregated(df, batch)
        assert found == sorted(map(tuple, expected.collect()))
        assert ours.last_batch.late_rows == theirs.last_batch.late_rows
        late += ours.last_batch.late_rows
        if batch == 4:  # another driver has the same batch again
            ours.close()
            ours = make_service(partitions=2, store="sums")
            assert aggregated(df, batch) == found
    assert late > 0
    [((key, _, start_ms), kept)] = ours.scan()
    assert (key, start_ms) == ("z", int(NOON.timestamp() + 500 * 60) * 1000)
    bounds = dict.fromkeys(("window_first_ms", "window_last_ms"), start_ms)
    assert kept["aggregates"] == {"n": 2, "total": 2, "top": [{"by": 1, "value": 1}] * 2, **bounds}


def test_a_session_is_summed_in_one_order(spark: Any, make_service: Any) -> None:
    """Doubles that give other digits in another order; and rows without a time are refused."""
    service = make_service(partitions=2)
    rows = [("a", minute, minute) for minute in range(40)]
    df = frame(spark, rows).selectExpr("key", "at", "0.1D / (1 + amount * amount) AS x")
    options: dict[str, Any] = {"key": "key", "aggs": {"total": cs.sum("x")}, "event_time": "at"}
    options["window"] = cs.Session("2 minutes")
    with pytest.raises(cs.InvalidInputError, match="event time 'at' is null in 1 rows"):
        service.aggregate(df.unionAll(df.limit(1).selectExpr("key", "CAST(null AS timestamp)", "x")), 0, **options)
    totals = set()
    for batch, order in enumerate(("at", "x", "rand(3)")):
        shuffled = df.orderBy(F.expr(order)).selectExpr(f"key || {batch} AS key", "at", "x").coalesce(1)
        totals.add(service.aggregate(shuffled, batch, **options).first()["total"])
    assert len(totals) == 1
