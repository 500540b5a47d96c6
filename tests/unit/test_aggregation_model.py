"""Any rows, cut into any batches: what comes out for a key is what its rows give when they are taken all at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from statistics import variance
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark

from changelog_state.aggregation.functions import adding, collecting, counting, extremes, moments, picking
from tests.support.aggregates import Call, Model, Row, in_order, merge_all

_K = 3
_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
_STRUCT = spark.StructType([spark.StructField("a", spark.LongType()), spark.StructField("b", spark.StringType())])
# Halves: sums of them are exact, in any order.
_TYPES: dict[spark.DataType, st.SearchStrategy[Any]] = {
    spark.LongType(): st.integers(-5, 5) | st.integers(-(2**20), 2**20),
    spark.IntegerType(): st.integers(-5, 5),
    spark.DoubleType(): st.integers(-9, 9).map(lambda n: n / 2) | st.just(float("nan")),
    spark.FloatType(): st.integers(-9, 9).map(lambda n: n / 2),
    spark.DecimalType(10, 2): st.integers(-(10**6), 10**6).map(lambda n: Decimal(n).scaleb(-2)),
    spark.StringType(): st.text("abé\0", max_size=3),
    spark.BinaryType(): st.binary(max_size=2),
    spark.BooleanType(): st.booleans(),
    spark.DateType(): st.dates(date(2020, 1, 1), date(2020, 1, 9)),
    spark.TimestampType(): st.integers(-9, 9).map(lambda n: _EPOCH + timedelta(microseconds=n)),
    spark.TimestampNTZType(): st.integers(-9, 9).map(lambda n: _EPOCH.replace(tzinfo=None) + timedelta(seconds=n)),
    _STRUCT: st.fixed_dictionaries({"a": st.none() | st.integers(-2, 2), "b": st.none() | st.sampled_from("xy")}),
}
_NUMBERS = (spark.LongType(), spark.IntegerType(), spark.DoubleType(), spark.FloatType(), spark.DecimalType(10, 2))


def _values(rows: Sequence[Row]) -> list[Any]:
    return [row["x"] for row in rows if row["x"] is not None]


def _total(values: list[Any]) -> Any:
    return sum(values) if values else None


def _moments(rows: Sequence[Row]) -> list[Any]:
    values = [float(value) for value in _values(rows)]
    if not values:
        return [0, None, None]
    mean = sum(values) / len(values)
    return [len(values), mean, sum((value - mean) ** 2 for value in values)]


def _variance(rows: Sequence[Row]) -> float | None:
    values = [float(value) for value in _values(rows)]
    if any(map(math.isnan, values)) and len(values) > 1:
        return math.nan
    return variance(values) if len(values) > 1 else None


def _pick(choose: Callable[..., Any], rows: Sequence[Row], key: Callable[[Row], Any]) -> Any:
    return choose(rows, key=key) if rows else None


def _by(row: Row) -> Any:
    return in_order((row["by"], row["x"]))


def _with_by(rows: Sequence[Row], *, values_only: bool = False) -> list[Row]:
    found = [{"by": row["by"], "value": row["x"]} for row in rows if row["by"] is not None]
    return [row for row in found if row["value"] is not None] if values_only else found


def _by_value(row: Row) -> Any:
    return in_order((row["by"], row["value"]))


def number_models(kind: spark.DataType) -> dict[str, Model]:
    def mean(rows: Sequence[Row]) -> Any:
        values = list(map(float, _values(rows)))
        return sum(values) / len(values) if values else None

    def total(rows: Sequence[Row]) -> list[Any]:
        return [_total(_values(rows)), len(_values(rows))]

    def as_double(rows: Sequence[Row]) -> list[Any]:
        return [_total(list(map(float, _values(rows)))), len(_values(rows))]

    real = isinstance(kind, (spark.DoubleType, spark.FloatType))
    return {
        "total": Model(
            adding.sum("x"),
            (kind,),
            lambda rows: total(rows)[: 1 if real else 2],
            lambda rows: _total(_values(rows)),
        ),
        "average": Model(adding.mean("x"), (kind,), as_double, mean),
        "spread": Model(moments.variance("x"), (kind,), _moments, _variance),
        "deviation": Model(
            moments.stddev("x"),
            (kind,),
            _moments,
            lambda rows: None if (found := _variance(rows)) is None else math.sqrt(found),
        ),
    }


def any_models(kind: spark.DataType, by: spark.DataType) -> dict[str, Model]:
    def key(row: Row) -> Any:
        return in_order(row["x"])

    def smallest(rows: Sequence[Row]) -> Any:
        return min(_values(rows), key=in_order, default=None)

    def largest(rows: Sequence[Row]) -> Any:
        return max(_values(rows), key=in_order, default=None)

    def last_by(rows: Sequence[Row]) -> Any:
        return _pick(max, _with_by(rows), _by_value)

    def first_by(rows: Sequence[Row]) -> Any:
        return _pick(min, _with_by(rows), _by_value)

    def last_value_by(rows: Sequence[Row]) -> Any:
        return _pick(max, _with_by(rows, values_only=True), _by_value)

    def value(row: Row | None) -> Any:
        return None if row is None else row["value"]

    def newest_by(rows: Sequence[Row]) -> list[Row]:
        return sorted(_with_by(rows, values_only=True), key=_by_value)[-_K:]

    def oldest_by(rows: Sequence[Row]) -> list[Row]:
        return sorted(_with_by(rows, values_only=True), key=_by_value)[:_K]

    def top_by(rows: Sequence[Row]) -> list[Row]:
        return sorted(_with_by(rows, values_only=True), key=_by_value, reverse=True)[:_K]

    def top(rows: Sequence[Row]) -> list[Any]:
        return sorted(_values(rows), key=in_order, reverse=True)[:_K]

    def listed(function: Callable[[Sequence[Row]], list[Row]]) -> Callable[[Sequence[Row]], list[Any]]:
        return lambda rows: [row["value"] for row in function(rows)]

    one, two = (kind,), (kind, by)
    models = {
        "n": Model(counting.count(), (), lambda rows: [len(rows)], len),
        "given": Model(counting.count("x"), one, lambda rows: [len(_values(rows))], lambda r: len(_values(r))),
        "first": Model(picking.first("x"), one, lambda rows: [rows[0]["x"]], lambda rows: rows[0]["x"]),
        "last": Model(picking.last("x"), one, lambda rows: [rows[-1]["x"]], lambda rows: rows[-1]["x"]),
        "first_value": Model(
            picking.first("x", ignore_nulls=True),
            one,
            lambda rows: [next(iter(_values(rows)), None)],
            lambda rows: next(iter(_values(rows)), None),
        ),
        "last_value": Model(
            picking.last("x", ignore_nulls=True),
            one,
            lambda rows: [next(reversed(_values(rows)), None)],
            lambda rows: next(reversed(_values(rows)), None),
        ),
        "first_by": Model(
            picking.first("x", by="by"), two, lambda rows: [first_by(rows)], lambda rows: value(first_by(rows))
        ),
        "last_by": Model(
            picking.last("x", by="by"), two, lambda rows: [last_by(rows)], lambda rows: value(last_by(rows))
        ),
        "last_value_by": Model(
            picking.last("x", by="by", ignore_nulls=True),
            two,
            lambda rows: [last_value_by(rows)],
            lambda rows: value(last_value_by(rows)),
        ),
        "newest": Model(
            collecting.collect("x", _K), one, lambda rows: [_values(rows)[-_K:]], lambda rows: _values(rows)[-_K:]
        ),
        "oldest": Model(
            collecting.collect("x", _K, keep="oldest"),
            one,
            lambda rows: [_values(rows)[:_K]],
            lambda rows: _values(rows)[:_K],
        ),
        "newest_by": Model(
            collecting.collect("x", _K, by="by"), two, lambda rows: [newest_by(rows)], listed(newest_by)
        ),
        "oldest_by": Model(
            collecting.collect("x", _K, keep="oldest", by="by"), two, lambda r: [oldest_by(r)], listed(oldest_by)
        ),
        "top_by": Model(collecting.top("x", _K, by="by"), two, lambda rows: [top_by(rows)], listed(top_by)),
        "top": Model(collecting.top("x", _K), one, lambda rows: [top(rows)], top),
    }
    if not isinstance(kind, spark.StructType):
        models["smallest"] = Model(extremes.min("x"), one, lambda rows: [smallest(rows)], smallest)
        models["largest"] = Model(extremes.max("x"), one, lambda rows: [largest(rows)], largest)
    return models


Batches = list[dict[str, list[Row]]]


def batches_of(kind: spark.DataType, by: spark.DataType) -> st.SearchStrategy[Batches]:
    row = st.fixed_dictionaries({"x": st.none() | _TYPES[kind], "by": st.none() | _TYPES[by]})
    batch = st.dictionaries(st.sampled_from("abcd"), st.lists(row, min_size=1, max_size=5), min_size=1)
    return st.lists(batch.map(lambda rows: dict(sorted(rows.items()))), min_size=1, max_size=4)


def close(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(found) and math.isnan(wanted))
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(close, found, wanted))
    return type(found) is type(wanted) and found == wanted


def check(models: dict[str, Model], batches: Batches) -> None:
    call = Call.of(models)
    seen: dict[str, list[Row]] = {}
    for batch in batches:
        found = merge_all(call, models, batch)
        for key, rows in batch.items():
            seen.setdefault(key, []).extend(rows)
            for name, model in models.items():
                wanted = model.result(seen[key])
                assert close(found[key][name], wanted), (key, name, found[key][name], wanted)


@pytest.mark.parametrize("kind", _NUMBERS, ids=lambda kind: kind.simpleString())
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_sums_means_and_variances(kind: spark.DataType, data: st.DataObject) -> None:
    check(number_models(kind), data.draw(batches_of(kind, spark.LongType())))


@pytest.mark.parametrize("kind", _TYPES, ids=lambda kind: kind.simpleString())
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_everything_else_for_every_type(kind: spark.DataType, data: st.DataObject) -> None:
    by = data.draw(st.sampled_from(list(_TYPES)))
    check(any_models(kind, by), data.draw(batches_of(kind, by)))
