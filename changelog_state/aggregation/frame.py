"""Spark's half of ``aggregate``: a user's rows become one per key, and one task has one state partition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import DataType, DoubleType, FloatType

from changelog_state.aggregation.call import AggregateCall
from changelog_state.aggregation.closing import Closing
from changelog_state.aggregation.columns import FIRST, LAST_WINDOW, LATE, ROWS, TIMED, partial_name
from changelog_state.aggregation.functions.base import Aggregate, Input
from changelog_state.aggregation.over import Sessions
from changelog_state.arrangement import Arranged, OrderBy, column_named, row_order
from changelog_state.errors import ConfigurationError
from changelog_state.task.spec import PARTITION_COLUMN

__all__ = ["aggregated", "check_order", "input_types"]

_NULL, _TIME, _LATE, _STRETCH, _ONCE = "null", "time", "late", "stretch", "once"
_SORT_ORDER = re.compile(r" (ASC|DESC) NULLS (FIRST|LAST)'>$")
"""What Spark calls columns that tell how to sort, and have no value."""


def input_types(df: DataFrame, aggregates: Mapping[str, Aggregate]) -> dict[str, list[DataType]]:
    """Of what each aggregate is given."""
    given = [(name, each) for name, aggregate in aggregates.items() for each in aggregate.inputs]
    missing = sorted({each for _, each in given if isinstance(each, str)} - set(df.columns))
    if missing:
        raise ConfigurationError(
            f"aggs= has columns {missing} that are not in the DataFrame, which has {df.columns}; "
            "for an expression give a Column, as in cs.sum(F.col('price') * F.col('quantity'))"
        )
    schema = df.schema if all(isinstance(each, str) for _, each in given) else None
    found: dict[str, list[DataType]] = {name: [] for name in aggregates}
    if schema is not None:
        for name, each in given:
            found[name].append(schema[each].dataType)
        return found
    selected = df.select(*[_column(each).alias(f"i{number}") for number, (_, each) in enumerate(given)]).schema
    for (name, _), field in zip(given, selected.fields, strict=True):
        found[name].append(field.dataType)
    return found


def check_order(order_by: OrderBy) -> None:
    """Rows are aggregated together with their places, which therefore have to be values."""
    given = [order_by] if order_by is None or isinstance(order_by, (str, Column)) else order_by
    for each in given:
        if isinstance(each, Column) and _SORT_ORDER.search(str(each)):
            raise ConfigurationError(
                f"order_by has the sort order {each}, but aggregate() takes values and orders ascending; give the "
                "column itself, or for a descending order of numbers -F.col('o')"
            )


def aggregated(call: AggregateCall, partitions: int) -> Arranged:
    names = [
        partial_name(number) for number in range(sum(len(f.partial_types) for f in call.plan.functions.values()))
    ]
    event_time = call.lateness.event_time
    timed = () if event_time is None else (event_time.column, TIMED, LATE)
    columns = (*call.key_columns, *names, *timed, ROWS, PARTITION_COLUMN)
    if event_time is None:
        return Arranged(_frame(call, partitions, None), columns, None, None)
    return Arranged(call.df, columns, None, None, lambda watermark_ms: _frame(call, partitions, watermark_ms))


def _frame(call: AggregateCall, partitions: int, watermark_ms: int | None) -> DataFrame:
    """
    1. Only the columns that are needed, under plain names, to the partitions of the state.
    2. Rows sorted where the order of additions would show in the last digits of a result; for sessions by time.
    3. Aggregated: key, partials, event times, number of rows, and the partition as a proof; sorted by key.
    """
    df, plan, in_windows = call.df, call.plan, isinstance(call.windows, Closing)
    keys = [f"k{number}" for number in range(len(call.key_columns))]
    inputs, used = _inputs(call.aggregates, call.types)
    order = row_order(df, call.order_by)
    places = [f"o{number}" for number in range(len(order))]
    named = [column_named(name) for name in call.key_columns]
    partition = F.pmod(F.hash(*named), F.lit(partitions))
    rows = df.select(
        *[column.alias(key) for column, key in zip(named, keys, strict=True)],
        # NOTE: always null, which Spark does not know. So it leaves the hash of the keys as it is, and yet no
        # exchange of somebody else's can take the place of ours: it could end with several partitions in one task.
        F.when(partition < 0, partition).alias(_NULL),
        *[column.alias(name) for name, column in used.items()],
        *[column.alias(place) for column, place in zip(order, places, strict=True)],
        *_timed(call, watermark_ms),
        *([F.col(LAST_WINDOW).alias(_ONCE)] if in_windows else []),
    ).repartition(partitions, *keys, _NULL)
    added = {each: None for name, function in plan.functions.items() if function.order_shows for each in inputs[name]}
    if isinstance(call.windows, Sessions):
        [time] = inputs[FIRST]
        rows = _in_stretches(rows, [*keys, _NULL], time, call.windows.kind.gap_ms, added)
    elif added:
        rows = rows.sortWithinPartitions(*keys, _NULL, *added)
    found = [
        partial
        for name, function in plan.functions.items()
        for partial in function.partials([F.col(each) for each in inputs[name]], [F.col(place) for place in places])
    ]
    event_time = call.lateness.event_time
    once = F.col(_ONCE) if in_windows else F.lit(True)
    apart = [_STRETCH] if isinstance(call.windows, Sessions) else []
    if event_time is not None:
        found += [F.max(_TIME), F.count(F.when(once, F.col(_TIME))), F.count(F.when(F.col(_LATE), True))]
        apart += [_LATE] if event_time.late == "drop" else []
    found.append(F.count(F.when(once, True)))
    results = [f"c{number}" for number in range(len(found))]
    grouped = rows.groupBy(*keys, _NULL, *apart).agg(
        *[column.alias(name) for column, name in zip(found, results, strict=True)]
    )
    proof = F.pmod(F.hash(*keys), F.lit(partitions)).alias(PARTITION_COLUMN)
    return grouped.sortWithinPartitions(*keys, *apart).select(*keys, *results, proof)


def _in_stretches(rows: DataFrame, keys: Sequence[str], time: str, gap_ms: int, others: Iterable[str]) -> DataFrame:
    """Rows of a key that are less than a gap apart get the same number, which grows with the time."""
    in_order = Window.partitionBy(*keys).orderBy(time, *others)
    begins = F.when(F.col(time) - F.lag(time).over(in_order) >= gap_ms, 1).otherwise(0)
    return rows.withColumn(_STRETCH, begins).withColumn(_STRETCH, F.sum(_STRETCH).over(in_order))


def _timed(call: AggregateCall, watermark_ms: int | None) -> list[Column]:
    event_time = call.lateness.event_time
    if event_time is None:
        return []
    late = F.coalesce(call.lateness.is_late(call.df, watermark_ms), F.lit(False))
    return [column_named(event_time.column).alias(_TIME), late.alias(_LATE)]


def _inputs(
    aggregates: Mapping[str, Aggregate], types: Mapping[str, Sequence[DataType]]
) -> tuple[dict[str, list[str]], dict[str, Column]]:
    """The names of each aggregate's inputs, and what they stand for. A column that is used twice goes along once."""
    by_input: dict[Input, str] = {}
    inputs: dict[str, list[str]] = {}
    used: dict[str, Column] = {}
    for name, aggregate in aggregates.items():
        inputs[name] = []
        for each, kind in zip(aggregate.inputs, types[name], strict=True):
            known = by_input.get(each) if isinstance(each, str) else None
            if known is None:
                known = f"i{len(used)}"
                used[known] = _column(each)
                if isinstance(kind, (FloatType, DoubleType)):
                    # Makes 0.0 of -0.0. They are equal, so which one is found would depend on the order of the rows.
                    used[known] += F.lit(0.0).cast(kind)
                if isinstance(each, str):
                    by_input[each] = known
            inputs[name].append(known)
    return inputs, used


def _column(given: Input) -> Column:
    return column_named(given) if isinstance(given, str) else given
