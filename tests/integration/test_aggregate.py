"""``aggregate`` through Spark, agent and changelog, against Spark's own aggregation of all rows at once."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

import changelog_state as cs

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

_START = datetime(2024, 3, 1, tzinfo=UTC)
_SCHEMA = (
    "shop string, sku int, amount double, quantity int, price decimal(9,2), ok boolean, note string, ts timestamp, "
    "id long"
)


def row() -> Any:
    return F.struct("quantity", "note")


def aggs() -> dict[str, cs.Aggregate]:
    return {
        "n": cs.count(),
        "amounts": cs.count("amount"),
        "arrays": cs.count(F.when(F.col("ok"), F.array("quantity"))),
        "spend": cs.sum("amount"),
        "items": cs.sum("quantity"),
        "paid": cs.sum(F.col("price") * 2),
        "average": cs.mean("quantity"),
        "spread": cs.variance("amount"),
        "deviation": cs.stddev("quantity"),
        "least": cs.min("price"),
        "most": cs.max("amount"),
        "latest": cs.max("ts"),
        "longest": cs.max("note"),
        "any_ok": cs.max("ok"),
        "first": cs.first("note", by="ts"),
        "last": cs.last(row(), by="id"),
        "arrived": cs.last("id"),
        "newest": cs.collect("id", 3, by="ts"),
        "oldest": cs.collect("note", 2, keep="oldest"),
        "top": cs.top("amount", 3),
        "visitors": cs.approx_distinct("id"),
    }


def wanted() -> dict[str, Any]:
    """As Spark has it, over all rows. Ties and order are by id, which is never twice."""
    return {
        "n": F.count(F.lit(1)),
        "amounts": F.count("amount"),
        "arrays": F.count_if("ok"),
        "spend": F.sum("amount"),
        "items": F.sum("quantity"),
        "paid": F.sum(F.col("price") * 2).cast("decimal(38,2)"),
        "average": F.avg("quantity"),
        "spread": F.var_samp("amount"),
        "deviation": F.stddev_samp("quantity"),
        "least": F.min("price"),
        "most": F.max("amount"),
        "latest": F.max("ts"),
        "longest": F.max("note"),
        "any_ok": F.max("ok"),
        "first": F.min(F.struct("ts", "note"))["note"],
        "last": F.max_by(row(), "id"),
        "arrived": F.max("id"),
        "newest": F.reverse(F.slice(F.sort_array(F.collect_list(F.struct("ts", "id")), asc=False), 1, 3))["id"],
        "oldest": F.slice(
            F.sort_array(F.collect_list(F.when(F.col("note").isNotNull(), F.struct("id", "note")))), 1, 2
        )["note"],
        "top": F.slice(F.sort_array(F.collect_list("amount"), asc=False), 1, 3),
        "visitors": F.count_distinct("id"),
    }


def rows(batch: int, count: int = 300) -> list[tuple[Any, ...]]:
    """Some shops are in every batch, some in few; some values are null, one key has nothing but nulls."""
    made, picked = [], random.Random(batch)
    for number in range(count):
        shop = picked.choice(["a", "b", "b\0", f"c{batch}", "nulls"])
        given = (
            picked.choice([0.1, -2.5, 1e15 / 3, 7.25, picked.random()]),
            picked.randint(-5, 5),
            Decimal(picked.randint(-(10**9) + 1, 10**9 - 1)).scaleb(-2),
            picked.random() < 0.3,
            picked.choice(["x", "yy", "größe"]),
            _START + timedelta(microseconds=picked.randint(0, 10**7)),
        )
        if shop == "nulls":
            given = (None,) * 5 + given[-1:]  # type: ignore[assignment]
        elif picked.random() < 0.2:
            hidden = picked.randrange(5)
            given = tuple(None if place == hidden else value for place, value in enumerate(given))  # type: ignore[assignment]
        made.append((shop, picked.randint(0, 3), *given, batch * 100_000 + number))
    return made


def frame(spark: Any, *batches: int) -> Any:
    data = [row for batch in batches for row in rows(batch)]
    random.Random(len(data)).shuffle(data)
    return spark.createDataFrame(data, _SCHEMA).repartition(3)


def aggregated(service: cs.StateService, df: Any, batch: int, aggregates: dict[str, Any]) -> dict[Any, Any]:
    result = service.aggregate(df, batch, key=["shop", "sku"], aggs=aggregates, order_by="id")
    assert result.columns == ["shop", "sku", *aggregates]
    return {(row.shop, row.sku): row.asDict() for row in result.collect()}


def close(name: str, found: Any, wanted: Any) -> bool:
    if name == "visitors":
        return abs(found - wanted) <= max(1, 0.2 * wanted)
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(found, wanted, rel_tol=1e-9)
    return type(found) is type(wanted) and found == wanted


def test_results_are_those_of_all_rows_at_once(spark: Any, make_service: Any) -> None:
    service = make_service()
    aggregated(service, frame(spark, 0), 0, aggs())
    found = aggregated(service, frame(spark, 1), 1, aggs())
    assert found.keys() == {(row[0], row[1]) for row in rows(1)}
    everything = frame(spark, 0, 1).groupBy("shop", "sku")
    compared = 0
    for row in everything.agg(*[column.alias(name) for name, column in wanted().items()]).collect():
        key = row.shop, row.sku
        for name in aggs() if key in found else ():
            compared += 1
            assert close(name, found[key][name], row[name]), (key, name, found[key][name], row[name])
    assert compared == len(found) * len(aggs())

    # A replay by a driver that was started again: the same rows, to the last bit, from differently cut input.
    state = dict(service.scan())
    assert aggregated(make_service(), frame(spark, 1).repartition(5), 1, aggs()) == found
    assert dict(service.scan()) == state
    assert state["a", 1]["aggregates"]["n"] == found["a", 1]["n"]

    # Other aggregates from now on, from a new service.
    service = make_service()
    grown = {"n": cs.count(), "largest": cs.max("quantity"), "newest": cs.collect("id", 3, by="ts")}
    later = aggregated(service, frame(spark, 2), 2, grown)
    for key in later.keys() & found.keys():
        own = [row for row in rows(2) if row[:2] == key]
        assert later[key]["n"] == found[key]["n"] + len(own)
        assert later[key]["largest"] == max((row[3] for row in own if row[3] is not None), default=None)
    assert service.get(("a", 1), "aggregates").keys() == grown.keys()
    with pytest.raises(cs.ConfigurationError, match="aggregate 'n' is kept as 'count', but is now asked for as 'sum"):
        aggregated(service, frame(spark, 3), 3, {"n": cs.sum("quantity")})
    assert aggregated(service, frame(spark, 3), 3, grown).keys() == {(row[0], row[1]) for row in rows(3)}


def test_a_sum_beyond_its_type_changes_nothing(spark: Any, make_service: Any) -> None:
    service = make_service()
    half = spark.createDataFrame([("a", 2**62), ("b", 1)], "k string, x long")
    total = {"total": cs.sum("x")}
    service.aggregate(half, 0, key="k", aggs=total)
    for too_much in (half, spark.createDataFrame([("c", 2**62)] * 2, "k string, x long")):
        with pytest.raises(cs.ValueEncodingError, match="sum 'total' of key '[ac]' goes beyond the range of bigint"):
            service.aggregate(too_much, 1, key="k", aggs=total)
    assert dict(service.scan()) == {"a": {"aggregates": {"total": 2**62}}, "b": {"aggregates": {"total": 1}}}


def test_beside_other_state_that_expires(spark: Any, make_service: Any) -> None:
    """Aggregates live by the service's time to live, too, and every batch takes away what is over."""

    def remember(key: str, rows: Any, state: cs.State) -> None:
        state.set("seen", len(rows))

    service = make_service(ttl=0.001)
    # Partitioned by Spark as by us, and by the same key: still one task holds one partition.
    df = spark.createDataFrame([("a",), ("b",), ("c",)], "k string").groupBy("k").agg(F.count(F.lit(1)).alias("n"))
    service.apply(df, 0, remember, key="k", schema="k string")
    found = [
        service.aggregate(df.where("k != 'b'"), batch, key="k", aggs={"n": cs.count()}).collect() for batch in (1, 2)
    ]
    assert [sorted(map(tuple, each)) for each in found] == [[("a", 1), ("c", 1)]] * 2
    assert service.metrics()["expired"] == 3
    assert service.metrics()["rows"] == 7
    assert dict(service.scan()) == {}


@pytest.mark.parametrize("late", ["accept", "side_output"])
def test_late_rows(late: Any, spark: Any, make_service: Any) -> None:
    """Rows from before the watermark, which is the latest time of all batches before, less the delay."""
    batches = [[("a", 100), ("b", 0)], [("a", 94), ("a", 95), ("b", 94)], [("a", 120), ("b", 94)], [("b", 109)]]
    service, seen = make_service(), []
    for batch, events in enumerate(batches):
        data = [(key, _START + timedelta(seconds=second), second) for key, second in events]
        df = spark.createDataFrame(data, "k string, ts timestamp, second long")
        result = service.aggregate(
            df,
            batch,
            key="k",
            aggs={"n": cs.count(), "last": cs.max("second")},
            event_time="ts",
            watermark_delay="5 seconds",
            late=late,
        )
        rows, side = result if late == "side_output" else (result, None)
        summary = service.last_batch
        assert summary is not None
        assert summary.rows == len(events)
        found = sorted(map(tuple, rows.collect()))
        seen.append((found, summary.late_rows))
        assert side is None or side.count() == summary.late_rows
    if late == "accept":
        results = [[("a", 1, 100), ("b", 1, 0)], [("a", 3, 100), ("b", 2, 94)], [("a", 4, 120), ("b", 3, 94)]]
        assert seen == [*zip(results, [0, 2, 1], strict=True), ([("b", 4, 109)], 1)]
    else:
        results = [[("a", 1, 100), ("b", 1, 0)], [("a", 2, 100)], [("a", 3, 120)], []]
        assert seen == [*zip(results, [0, 2, 1, 1], strict=True)]


def test_what_is_refused_before_anything_happens(spark: Any, make_service: Any) -> None:
    service = make_service(state=[cs.Value("mine", int)])
    df = spark.createDataFrame([("a", "x")], "k string, x string")
    for refused, match in (
        ({"aggs": {"n": cs.sum("x")}}, "takes numbers"),
        ({"aggs": {"n": cs.sum("y")}}, r"columns \['y'\] that are not in the DataFrame"),
        ({"aggs": {"k": cs.count()}}, "called .'k'. like columns of the key"),
        ({"aggs": {"n": 1}}, r"use cs.count\(\)"),
        ({"aggs": {"n": cs.count()}, "name": "mine"}, "which state= declares"),
        ({"aggs": {"n": cs.count()}, "order_by": ["k", F.col("x").desc()]}, r"orders ascending; .*-F.col\('o'\)"),
        ({"aggs": {"n": cs.count()}, "order_by": F.asc_nulls_last("x")}, "give the column itself"),
    ):
        with pytest.raises(cs.ConfigurationError, match=match):
            service.aggregate(df, 0, key="k", **refused)
    nobody_knows = spark.createDataFrame([("a", _START), ("a", None)], "k string, ts timestamp")
    with pytest.raises(cs.InvalidInputError, match="event time 'ts' is null in 1 rows"):
        service.aggregate(nobody_knows, 0, key="k", aggs={"n": cs.count()}, event_time="ts")
    with pytest.raises(cs.InvalidKeyError, match="key columns .'z'."):
        service.aggregate(df, 0, key="z", aggs={"n": cs.count()})
