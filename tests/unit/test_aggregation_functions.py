"""Edges of the aggregation functions: ranges, NaN, what a null means, what they refuse."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from changelog_state.aggregation.functions import adding, collecting, counting, distinct, extremes, moments, picking
from changelog_state.aggregation.functions.base import Aggregate
from changelog_state.aggregation.plan import plan_of
from changelog_state.errors import ConfigurationError, ValueEncodingError
from tests.support.aggregates import Call, Model, merged_rows

_LARGEST = 2**63 - 1
LONG, DOUBLE, STRING = spark.LongType(), spark.DoubleType(), spark.StringType()


def call(aggregate: Aggregate, *kinds: spark.DataType) -> Call:
    return Call.of({"x": Model(aggregate, kinds, lambda rows: [], lambda rows: None)})


def results(aggregate: Aggregate, kind: spark.DataType, batches: list[list[Any]]) -> list[Any]:
    """Of one key, batch by batch; a batch is the columns' values for it."""
    made = call(aggregate, kind)
    kinds = made.plan.functions["x"].partial_types
    return [
        merged_rows(made, ["k"], [pa.array([value], kind) for value, kind in zip(batch, kinds, strict=True)])["k"][
            "x"
        ]
        for batch in batches
    ]


def test_a_sum_of_longs_may_reach_the_end_of_its_range() -> None:
    assert results(adding.sum("x"), LONG, [[_LARGEST - 1, 1], [1, 1]])[-1] == _LARGEST
    assert results(adding.sum("x"), LONG, [[-_LARGEST, 1], [-1, 1]])[-1] == -_LARGEST - 1


@pytest.mark.parametrize(("stored", "more"), [(_LARGEST, 1), (-_LARGEST - 1, -1), (_LARGEST, _LARGEST)])
def test_a_sum_beyond_long_is_an_error_that_names_the_key(stored: int, more: int) -> None:
    made = call(adding.sum("x"), LONG)
    merged_rows(made, ["b"], [pa.array([stored]), pa.array([1])])
    before = dict(made.stored)
    partials = [pa.array([5, more, 7]), pa.array([1, 1, 1])]
    with pytest.raises(ValueEncodingError, match=r"sum 'x' of key 'b' goes beyond the range of bigint"):
        merged_rows(made, ["a", "b", "c"], partials)
    assert made.stored == before


def test_a_sum_that_spark_could_not_hold_is_an_error() -> None:
    """Spark's half gives null then, with a count that is not zero."""
    made = call(adding.sum("x"), LONG)
    with pytest.raises(ValueEncodingError, match="key 'b'"):
        merged_rows(made, ["a", "b"], [pa.array([None, None], pa.int64()), pa.array([0, 2])])


def test_a_decimal_sum_has_38_digits() -> None:
    kind = spark.DecimalType(38, 2)
    nines, cent = Decimal("9" * 36 + ".98"), Decimal("0.01")
    assert results(adding.sum("x"), kind, [[nines, 1], [cent, 1]])[-1] == Decimal("9" * 36 + ".99")
    with pytest.raises(ValueEncodingError, match=r"sum 'x' of key 'k' goes beyond the range of decimal\(38,2\)"):
        results(adding.sum("x"), kind, [[nines, 1], [cent, 1], [cent, 1]])


def test_sums_of_nothing_are_null_and_counts_of_nothing_zero() -> None:
    assert results(adding.sum("x"), LONG, [[None, 0], [None, 0], [4, 1], [None, 0]]) == [None, None, 4, 4]
    assert results(adding.sum("x"), DOUBLE, [[None], [1.5], [None]]) == [None, 1.5, 1.5]
    assert results(adding.mean("x"), LONG, [[None, 0], [4.0, 2]]) == [None, 2.0]
    assert results(counting.count("x"), LONG, [[0], [2]]) == [0, 2]


def test_a_variance_needs_two_values() -> None:
    found = results(moments.variance("x"), DOUBLE, [[0, None, None], [1, 5.0, 0.0], [0, None, None], [1, 7.0, 0.0]])
    assert found == [None, None, None, 2.0]
    found = results(moments.stddev("x"), DOUBLE, [[1, 5.0, 0.0], [1, 9.0, 0.0]])
    assert found[0] is None
    assert math.isclose(found[1], math.sqrt(8))


def test_infinity_is_no_number_to_take_the_variance_of() -> None:
    found = results(moments.variance("x"), DOUBLE, [[1, math.inf, math.nan], [0, None, None], [2, 1.0, 0.0]])
    assert found[0] is None
    assert math.isnan(found[-1])


def test_nan_is_larger_than_any_number() -> None:
    nan = math.nan
    assert results(extremes.min("x"), DOUBLE, [[nan], [1.0], [nan], [None]])[1:] == [1.0, 1.0, 1.0]
    largest = results(extremes.max("x"), DOUBLE, [[-math.inf], [None], [nan], [5.0]])
    assert largest[:2] == [-math.inf, -math.inf]
    assert all(map(math.isnan, largest[2:]))


def test_integers_of_any_width_come_back_as_they_were() -> None:
    made = call(extremes.max("x"), spark.ShortType())
    merged = made.task.merge(pa.nulls(1, pa.binary()), [pa.array([7], pa.int16())], str)
    assert merged.output[0].type == pa.int16()


def test_a_wider_column_goes_on_with_the_same_state() -> None:
    narrow, wide = call(extremes.max("x"), spark.IntegerType()), call(extremes.max("x"), LONG)
    assert narrow.plan.codec.single.fingerprint == wide.plan.codec.single.fingerprint


@pytest.mark.parametrize(
    ("aggregate", "large", "small"),
    [
        (extremes.max("x"), [3_000_000_000], [5]),
        (picking.first("x", ignore_nulls=True), [3_000_000_000], [5]),
        (collecting.top("x", 3), [[3_000_000_000]], [[5]]),
    ],
)
def test_a_narrower_column_must_hold_what_is_kept(aggregate: Aggregate, large: list[Any], small: list[Any]) -> None:
    wide, narrow = call(aggregate, LONG), call(aggregate, spark.IntegerType())
    merged_rows(wide, ["k"], [pa.array(large)])
    narrow.stored |= wide.stored
    with pytest.raises(ConfigurationError, match=f"{aggregate.kind} 'x' .* 3000000000 .*Cast the column to long"):
        merged_rows(narrow, ["k"], [pa.array(small)])


def test_first_and_last_take_nulls_for_values_unless_told_otherwise() -> None:
    assert results(picking.first("x"), STRING, [[None], ["a"]]) == [None, None]
    assert results(picking.last("x"), STRING, [["a"], [None]]) == ["a", None]
    assert results(picking.first("x", ignore_nulls=True), STRING, [[None], ["a"], ["b"]]) == [None, "a", "a"]
    assert results(picking.last("x", ignore_nulls=True), STRING, [["a"], [None]]) == ["a", "a"]


@pytest.mark.parametrize(
    ("aggregate", "kinds"),
    [
        (adding.sum("x"), [STRING]),
        (adding.mean("x"), [spark.BooleanType()]),
        (moments.variance("x"), [spark.DateType()]),
        (moments.stddev("x"), [spark.TimestampType()]),
        (extremes.max("x"), [spark.StructType([spark.StructField("a", LONG)])]),
        (picking.last("x"), [spark.MapType(STRING, LONG)]),
        (picking.last("x", by="y"), [LONG, spark.ArrayType(LONG)]),
        (picking.last("x"), [spark.StructType([spark.StructField("not a name", LONG)])]),
        (extremes.min("x"), [spark.StringType("UTF8_LCASE")]),
    ],
)
def test_types_that_do_not_fit(aggregate: Aggregate, kinds: list[spark.DataType]) -> None:
    with pytest.raises(ConfigurationError, match="cast it|or cast|rename|use UTF8_BINARY"):
        plan_of({"x": aggregate}, {"x": kinds})


@pytest.mark.parametrize(
    "kind",
    [
        spark.ArrayType(LONG),
        spark.MapType(STRING, LONG),
        spark.StructType([spark.StructField("not a name", LONG)]),
        spark.StringType("UTF8_LCASE"),
    ],
)
def test_values_of_any_type_are_counted(kind: spark.DataType) -> None:
    assert results(counting.count("x"), kind, [[0], [2]]) == [0, 2]


@pytest.mark.parametrize("k", [0, -1, True, 2.0, "3"])
def test_a_list_has_a_length(k: Any) -> None:
    for make in (collecting.collect, collecting.top):
        with pytest.raises(ConfigurationError, match="give a whole number of at least 1"):
            make("x", k)


def test_settings_that_do_not_exist() -> None:
    with pytest.raises(ConfigurationError, match="use 'newest' or 'oldest'"):
        collecting.collect("x", 3, keep="best")
    for rsd in (0, 1, 0.001, True, "0.05"):
        with pytest.raises(ConfigurationError, match="give 0.0020 to 0.26"):
            distinct.approx_distinct("x", rsd=rsd)  # type: ignore[arg-type]
