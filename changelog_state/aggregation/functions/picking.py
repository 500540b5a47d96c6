"""``first`` and ``last``: one row's value, by an order that is kept with it or by the order of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql import types as spark

from changelog_state.aggregation.avro.pieces import Mask
from changelog_state.aggregation.avro.types import AvroType, Field, Nullable, Record
from changelog_state.aggregation.functions.base import Aggregate, Function, Input, arrived
from changelog_state.aggregation.functions.order import extreme
from changelog_state.aggregation.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Arrived", "Ordered", "first", "last"]


def first(column: Input, *, by: Input | None = None, ignore_nulls: bool = False) -> Aggregate:
    """The value of the row with the smallest ``by``, or else of the row that came first."""
    return _aggregate("first", column, by, ignore_nulls)


def last(column: Input, *, by: Input | None = None, ignore_nulls: bool = False) -> Aggregate:
    """The value of the row with the largest ``by``, or else of the row that came last."""
    return _aggregate("last", column, by, ignore_nulls)


def _aggregate(kind: str, column: Input, by: Input | None, ignore_nulls: bool) -> Aggregate:
    latest = kind == "last"
    if by is None:
        return Aggregate(kind, (column,), lambda values, name: Arrived(values[0], latest, ignore_nulls))
    return Aggregate(
        kind, (column, by), lambda values, name: Ordered(values[0], values[1], f"{name}.row", latest, ignore_nulls)
    )


@dataclass(frozen=True)
class Arrived(Function):
    """By order of arrival: within a batch by the rows' order, across batches by the batches'."""

    value: Value
    latest: bool
    ignore_nulls: bool

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "last" if self.latest else "first"

    @property
    def definition(self) -> str:
        return f"{self.kind} of {self.value.kept}"

    @property
    def state(self) -> AvroType:
        return Nullable(self.value.avro)

    @property
    def output(self) -> spark.DataType:
        return self.value.spark

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [self.state.arrow]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        (value,) = inputs
        if not order:
            return [(F.last if self.latest else F.first)(value, ignorenulls=self.ignore_nulls)]
        row = arrived(order, value)
        if self.ignore_nulls:
            row = F.when(value.isNotNull(), row)
        return [(F.max if self.latest else F.min)(row)["value"]]

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        (new,) = partials
        if self.ignore_nulls:
            return pc.coalesce(new, old) if self.latest else pc.coalesce(old, new)
        return new if self.latest else pc.if_else(pa.array(known), old, new)

    def finish(self, state: pa.Array) -> pa.Array:
        return state


@dataclass(frozen=True)
class Ordered(Function):
    """By another column. Rows in which it is null are left out. Where it is the same, the value itself decides."""

    value: Value
    by: Value
    path: str
    latest: bool
    ignore_nulls: bool

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "last" if self.latest else "first"

    @property
    def definition(self) -> str:
        return f"{self.kind} of {self.value.kept} by {self.by.kept}"

    @property
    def state(self) -> AvroType:
        value = Field("value", Nullable(self.value.avro))
        return Nullable(Record(self.path, (Field("by", self.by.avro), value)))

    @property
    def output(self) -> spark.DataType:
        return self.value.spark

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [self.state.arrow]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        value, by = inputs
        counts = by.isNotNull() & value.isNotNull() if self.ignore_nulls else by.isNotNull()
        row = F.when(counts, F.struct(by.alias("by"), value.alias("value")))
        return [F.max(row) if self.latest else F.min(row)]

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        (new,) = partials
        return extreme(old, new, largest=self.latest)

    def finish(self, state: pa.Array) -> pa.Array:
        _, value = state.flatten()
        return value
