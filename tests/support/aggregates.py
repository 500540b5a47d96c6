"""Aggregates in plain Python, row by row: what Spark's half of each function gives, and what must come of it all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from changelog_state.aggregation.functions.base import Aggregate
from changelog_state.aggregation.merging import TaskAggregation
from changelog_state.aggregation.plan import Plan, plan_of

__all__ = ["Call", "Model", "Row", "in_order", "merge_all", "merged_rows"]

Row = dict[str, Any]


def in_order(value: Any) -> tuple[Any, ...]:
    """A key that sorts as Spark does: null first, NaN last. Fields of structs are in order of their names here."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (1, 1)
    if isinstance(value, dict):
        return (1, *(in_order(value[name]) for name in sorted(value)))
    if isinstance(value, tuple):
        return tuple(map(in_order, value))
    return (1, 0, value)


@dataclass(frozen=True)
class Model:
    """``partials``: of a key's rows in one batch, in their order of arrival. ``result``: of all of its rows."""

    aggregate: Aggregate
    types: tuple[spark.DataType, ...]
    partials: Callable[[Sequence[Row]], list[Any]]
    result: Callable[[Sequence[Row]], Any]


@dataclass
class Call:
    """``aggregate`` over batches of rows, without Spark and without a store."""

    plan: Plan
    task: TaskAggregation
    stored: dict[Any, bytes]

    @classmethod
    def of(
        cls, models: dict[str, Model], stored: dict[Any, bytes] | None = None, schemas: dict[bytes, str] | None = None
    ) -> Call:
        plan = plan_of(
            {name: model.aggregate for name, model in models.items()},
            {name: model.types for name, model in models.items()},
        )
        return cls(plan, TaskAggregation(plan, (schemas or {}).get), dict(stored or {}))


def merge_all(call: Call, models: dict[str, Model], batch: dict[Any, list[Row]]) -> dict[Any, Row]:
    """One batch: rows per key in, results per key out."""
    partials = []
    for name, model in models.items():
        given = [model.partials(rows) for rows in batch.values()]
        for number, kind in enumerate(call.plan.functions[name].partial_types):
            partials.append(pa.array([row[number] for row in given], kind))
    return merged_rows(call, list(batch), partials)


def merged_rows(call: Call, keys: list[Any], partials: list[pa.Array]) -> dict[Any, Row]:
    before = [call.stored.get(key) for key in keys]
    merged = call.task.merge(pa.array(before, pa.binary()), partials, keys.__getitem__)
    values = merged.values.to_pylist()
    call.stored |= dict(zip(keys, values, strict=True))
    fields = call.plan.output.fields
    assert [column.type for column in merged.output] == [to_arrow_type(field.dataType) for field in fields]
    rows = zip(*(column.to_pylist() for column in merged.output), strict=True)
    names = [field.name for field in fields]
    return {key: dict(zip(names, row, strict=True)) for key, row in zip(keys, rows, strict=True)}
