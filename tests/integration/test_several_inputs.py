"""Two streams in one query: told apart by a column, and joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

import changelog_state as cs
from changelog_state.errors import ConfigurationError, FunctionError, InvalidKeyError
from changelog_state.inputs import input_columns

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ORDERS = "user string, at timestamp, order_id long, amount double"
PAYMENTS = "user string, at timestamp, order_id long, by struct<bank:string>"


def at(minute: int) -> str:
    return f"2024-03-01T12:{minute:02}:00Z"


def test_streams_joined_with_a_time_bound(spark: Any, make_service: Any, tmp_path: Path) -> None:
    """Also a filter and a new column between the union and the batch, and a replay of the last batch."""
    streams = {}
    for name, schema in (("orders", ORDERS), ("payments", PAYMENTS)):
        (tmp_path / name).mkdir()
        streams[name] = spark.readStream.schema(schema).json(str(tmp_path / name))
    both = cs.union_inputs(streams).where("order_id > 0").withColumn("seen", F.lit(True))
    service = make_service()
    found: list[tuple[Any, ...]] = []
    late: list[tuple[Any, ...]] = []

    def on_batch(df: DataFrame, batch: int) -> None:
        joined, too_late = service.join(
            df,
            batch,
            left="orders",
            right="payments",
            key="user",
            event_time="at",
            watermark_delay="5 minutes",
            within="10 minutes",
            how="left",
            late="side_output",
        )
        rows = joined.selectExpr("user", "orders.order_id", "orders.amount", "payments.order_id", "payments.by.bank")
        found.extend((batch, *row) for row in rows.collect())
        late.extend((batch, row["input"], row["order_id"]) for row in too_late.collect())
        assert joined.schema["orders"].dataType.fieldNames() == ["at", "order_id", "amount", "seen"]

    def run() -> None:
        query = both.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(120)

    write(tmp_path / "orders", 0, [("a", at(0), 1, 1.5), ("b", at(1), 2, 2.5)])
    write(tmp_path / "payments", 0, [("a", at(3), 11, {"bank": "x"})])
    run()
    write(tmp_path / "orders", 1, [("a", at(30), 3, 3.5)])
    write(tmp_path / "payments", 1, [("a", at(19), 12, {"bank": "y"}), ("b", at(2), 13, {"bank": "z"})])
    run()
    assert found == [(0, "a", 1, 1.5, 11, "x"), (1, "b", 2, 2.5, 13, "z")]
    assert late == []
    assert set(service.get_all("a")) == {"left", "right"}
    write(tmp_path / "orders", 2, [("c", at(59), 4, 0.5), ("a", at(24), 5, 0.0)])
    run()
    assert late == [(2, "orders", 5)]
    write(tmp_path / "orders", 3, [("c", at(59), 6, 0.5)])
    run()
    assert found[2:] == [(3, "a", 3, 3.5, None, None)]
    for name in ("3", ".3.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run()
    assert found[3:] == found[2:3], "the same in a replay"
    assert set(dict(service.scan())) == {"c"}


def write(directory: Path, number: int, rows: list[tuple[Any, ...]]) -> None:
    names = ("user", "at", "order_id", "amount" if directory.name == "orders" else "by")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (directory / f"{number}.json").write_text("\n".join(lines))


def test_columns_of_a_union_are_those_of_all(spark: Any) -> None:
    a = spark.createDataFrame([("x", 1, 2.0)], "k string, `a.b` int, only_a double")
    b = spark.createDataFrame([("y", 3, ["z"])], "k string, `a.b` int, `from` array<string>")
    union = cs.union_inputs({"first in": a}, tag="source", other=b)
    assert union.columns == ["source", "k", "a.b", "only_a", "from"]
    assert [tuple(row) for row in union.collect()] == [
        ("first in", "x", 1, 2.0, None),
        ("other", "y", 3, None, ["z"]),
    ]
    assert input_columns(union, "source", ["other", "first in"]) == [["k", "a.b", "from"], ["k", "a.b", "only_a"]]
    odd = spark.createDataFrame(
        [("x", {"two words": 1})], "k string, odd struct<`two words`: int, `a-b`: array<string>>"
    )
    nothing = cs.union_inputs(a=odd, b=a).where("input = 'b'").select("odd")
    assert nothing.schema["odd"].dataType == odd.schema["odd"].dataType
    plain = spark.createDataFrame([("a", "k", 1)], "input string, k string, n int")
    assert input_columns(plain, "input", ["a", "b"]) == [["k", "n"], ["k", "n"]]


def test_inputs_that_do_not_fit_together(spark: Any) -> None:
    a = spark.createDataFrame([("x", 1)], "k string, n int")

    def refused(match: str, **inputs: DataFrame) -> None:
        with pytest.raises(ConfigurationError, match=match):
            cs.union_inputs(a=a, **inputs)

    refused("has 1 inputs")
    refused("'n' is of type int in input 'a', but of type bigint in 'b'; cast", b=a.selectExpr("k", "1L as n"))
    refused("'N' of input 'b' is called 'n' in 'a'", b=a.selectExpr("k", "n as N"))
    refused("'b' has a column 'input', which is what", b=a.selectExpr("k as input"))
    refused("several columns of one name", b=a.select("k", "k"))
    with pytest.raises(ConfigurationError, match="has 1 inputs"):
        cs.union_inputs({"a": a}, a=a)


def test_joins_that_are_not_possible(spark: Any, make_service: Any) -> None:
    service = make_service()
    a = spark.createDataFrame([], "k string, at timestamp")
    both = cs.union_inputs(a=a, b=a)
    given: dict[str, Any] = {"left": "a", "right": "b", "key": "k", "event_time": "at", "within": 1}

    def refused(kind: type[Exception], match: str, df: DataFrame = both, **changed: Any) -> None:
        with pytest.raises(kind, match=match):
            service.join(df, 0, **{**given, **changed})

    refused(ConfigurationError, r"has inputs \['a', 'b'\], not \['c'\]", right="c")
    refused(ConfigurationError, "has no column 'input'; make it with union_inputs", a)
    refused(ConfigurationError, "event_time column 'then' is not in the DataFrame", event_time="then")
    refused(InvalidKeyError, "'id'", key="id")
    refused(FunctionError, "a join has no function", late=print)
