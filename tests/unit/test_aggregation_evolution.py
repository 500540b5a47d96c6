"""What is stored explains itself, and outlives a change of the aggregates that are asked for."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from changelog_state.aggregation.functions import adding, collecting, counting, distinct, extremes, picking
from changelog_state.aggregation.functions.base import Aggregate
from changelog_state.aggregation.plan import Plan, check_aggregates, plan_of
from changelog_state.codec.avro import JSON_CODEC, encode_value
from changelog_state.codec.entries import MAP_CODEC, MAP_HEADER
from changelog_state.errors import ConfigurationError, ValueEncodingError
from tests.support.aggregates import Call, Model, merged_rows

LONG, DOUBLE, TIMESTAMP = spark.LongType(), spark.DoubleType(), spark.TimestampType()
COUNT, SUM, MAX = (counting.count(),), (adding.sum("x"), LONG), (extremes.max("x"), LONG)


def call(aggregates: dict[str, tuple[Any, ...]], earlier: Call | None = None) -> Call:
    models = {name: Model(each, tuple(kinds), len, len) for name, (each, *kinds) in aggregates.items()}  # type: ignore[arg-type]
    return Call.of(models, earlier.stored if earlier else None, schemas_of(earlier) if earlier else None)


def schemas_of(*calls: Call) -> dict[bytes, str]:
    """What the changelog keeps."""
    codecs = [each.plan.codec.single for each in calls]
    return {codec.fingerprint: codec.schema_json for codec in codecs}


def plan(**aggregates: tuple[Aggregate, list[spark.DataType]]) -> Plan:
    return plan_of(
        {name: each for name, (each, _) in aggregates.items()},
        {name: kinds for name, (_, kinds) in aggregates.items()},
    )


def test_any_avro_reader_can_read_the_state() -> None:
    made = call(
        {"n": COUNT, "total": SUM, "average": (adding.mean("x"), LONG), "top": (collecting.top("x", 2), LONG)}
    )
    merged_rows(
        made, ["k"], [pa.array([3]), pa.array([7]), pa.array([2]), pa.array([7.0]), pa.array([2]), pa.array([[5, 2]])]
    )
    [schema] = schemas_of(made).values()
    body = BytesIO(made.stored["k"][10:])
    assert fastavro.schemaless_reader(body, fastavro.parse_schema(json.loads(schema)), None) == {
        "n": 3,
        "total": 7,
        "average": {"sum": 7.0, "count": 2},
        "top": [5, 2],
    }


def test_an_added_aggregate_starts_from_nothing_and_a_removed_one_is_dropped() -> None:
    first = call({"n": COUNT, "total": SUM})
    merged_rows(first, ["a", "b"], [pa.array([1, 2]), pa.array([10, 20]), pa.array([1, 2])])
    second = call({"largest": MAX, "n": COUNT}, first)
    found = merged_rows(second, ["b", "c"], [pa.array([7, 8]), pa.array([1, 1])])
    assert found == {"b": {"largest": 7, "n": 3}, "c": {"largest": 8, "n": 1}}
    assert second.plan.codec.single.decode(second.stored["b"]) == {"largest": 7, "n": 3}


def test_keys_written_by_three_generations_meet_in_one_batch() -> None:
    first = call({"n": COUNT})
    merged_rows(first, ["a", "b", "c"], [pa.array([1, 1, 1])])
    second = call({"n": COUNT, "total": SUM}, first)
    merged_rows(second, ["b", "c"], [pa.array([1, 1]), pa.array([5, 6]), pa.array([1, 1])])
    third = call({"total": SUM, "n": COUNT, "latest": (picking.last("x"), LONG)}, second)
    third.task._find_schema = schemas_of(first, second).get
    merged_rows(third, ["c"], [pa.array([60]), pa.array([1]), pa.array([1]), pa.array([9])])
    found = merged_rows(
        third, ["a", "b", "c", "d"], [pa.array([1] * 4), pa.array([1] * 4), pa.array([1] * 4), pa.array([0] * 4)]
    )
    assert found == {
        "a": {"total": 1, "n": 2, "latest": 0},
        "b": {"total": 6, "n": 3, "latest": 0},
        "c": {"total": 67, "n": 4, "latest": 0},
        "d": {"total": 1, "n": 1, "latest": 0},
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SUM, MAX),
        (SUM, (adding.sum("x"), DOUBLE)),
        ((extremes.max("x"), LONG), (extremes.max("x"), TIMESTAMP)),
        ((picking.last("x"), LONG), (picking.last("x", by="y"), LONG, LONG)),
        ((picking.last("x"), LONG), (picking.first("x"), LONG)),
        ((collecting.collect("x", 3), LONG), (collecting.collect("x", 3, keep="oldest"), LONG)),
        ((distinct.approx_distinct("x"), LONG), (distinct.approx_distinct("x", rsd=0.02), LONG)),
        ((distinct.approx_distinct("x"), LONG), (distinct.approx_distinct("x"), spark.StringType())),
        ((extremes.min("x"), spark.DecimalType(10, 2)), (extremes.min("x"), spark.DecimalType(12, 2))),
    ],
)
def test_another_meaning_under_the_same_name_is_an_error(before: Any, after: Any) -> None:
    first, second = call({"v": before}), call({"v": after})
    assert first.plan.codec.single.fingerprint != second.plan.codec.single.fingerprint
    merged_rows(
        first, ["k"], [pa.nulls(1, kind) if kind != pa.int64() else pa.array([0]) for kind in kinds_of(first)]
    )
    second = call({"v": after}, first)
    with pytest.raises(ConfigurationError, match="aggregate 'v' is kept as .*; give it another name, or clear"):
        merged_rows(second, ["k"], [pa.nulls(1, kind) for kind in kinds_of(second)])


def kinds_of(made: Call) -> list[pa.DataType]:
    return made.plan.functions["v"].partial_types


def test_a_shorter_list_keeps_what_fits() -> None:
    first = call({"v": (collecting.top("x", 3), LONG)})
    merged_rows(first, ["k"], [pa.array([[9, 8, 7]])])
    second = call({"v": (collecting.top("x", 2), LONG)}, first)
    assert merged_rows(second, ["k"], [pa.array([[1]])]) == {"k": {"v": [9, 8]}}


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (lambda k: collecting.collect("x", k), [3, 4]),
        (lambda k: collecting.collect("x", k, keep="oldest"), [1, 2]),
        (lambda k: collecting.top("x", k), [4, 3]),
        (lambda k: collecting.collect("x", k, by="y"), [3, 4]),
    ],
)
def test_a_shorter_list_is_shown_without_new_rows(make: Callable[[int], Aggregate], kept: list[int]) -> None:
    """As when a window closes. A list that is short enough is beside it, and one of a key without any values."""
    kinds = (LONG,) * len(make(4).inputs)
    first, second = call({"v": (make(4), *kinds)}), call({"v": (make(2), *kinds)})
    lists: list[Any] = [[], [7], [1, 2, 3, 4]]
    if len(kinds) == 2:
        lists = [[{"by": each, "value": each} for each in its] for its in lists]
    merged_rows(first, ["a", "b", "c"], [pa.array(lists, *kinds_of(first))])
    states = second.task.decoded(pa.array([*first.stored.values(), None], pa.binary()))
    [found] = second.task.results(states.columns)
    assert found.to_pylist() == [[], [7], kept, []]


def test_state_of_something_else_is_an_error() -> None:
    made = call({"n": COUNT})
    made.stored["k"] = encode_value(5)
    with pytest.raises(ConfigurationError, match="keep the aggregates under another name"):
        merged_rows(made, ["k"], [pa.array([1])])
    for codec, value in ((JSON_CODEC, encode_value(5)), (MAP_CODEC, MAP_HEADER)):
        made.stored["k"] = value
        made.task._find_schema = {codec.fingerprint: codec.schema_json}.get
        with pytest.raises(ConfigurationError, match="keep the aggregates under another name"):
            merged_rows(made, ["k"], [pa.array([1])])


def test_damaged_state_is_an_error() -> None:
    made = call({"n": COUNT})
    merged_rows(made, ["k"], [pa.array([1])])
    made.stored["k"] = made.stored["k"][:-1]
    with pytest.raises(ValueEncodingError, match="it is cut short"):
        merged_rows(made, ["k"], [pa.array([1])])


def test_the_plan_travels_to_the_tasks() -> None:
    made = plan(n=(counting.count(), []), last=(picking.last("x", by="y"), [spark.DecimalType(9, 2), TIMESTAMP]))
    copied = pickle.loads(pickle.dumps(made))
    assert copied.codec.single.fingerprint == made.codec.single.fingerprint
    assert copied.output == made.output


def test_what_a_plan_refuses() -> None:
    with pytest.raises(ConfigurationError, match="aggs is empty"):
        check_aggregates({})
    with pytest.raises(ConfigurationError, match=r"'n' is 'count'; use cs.count\(\)"):
        check_aggregates({"n": "count"})  # type: ignore[dict-item]
    with pytest.raises(ConfigurationError, match="called 'two words'"):
        check_aggregates({"two words": counting.count()})
