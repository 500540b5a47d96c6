"""``sum`` and ``mean``. Like Spark's: nulls do not count; without any value the result is null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal as PlainDecimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql import types as spark

from changelog_state.aggregation.avro.pieces import Mask
from changelog_state.aggregation.avro.types import DOUBLE, LONG, AvroType, Decimal, Field, Nullable, Record
from changelog_state.aggregation.functions.base import (
    Aggregate,
    BadRowError,
    Function,
    Input,
    either,
    refused_input,
)
from changelog_state.aggregation.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["DecimalSum", "LongSum", "Mean", "RealSum", "mean", "sum"]

_MOST_DIGITS = 38


def sum(column: Input) -> Aggregate:
    """Of integers a long, of float and double a double, of decimals a decimal of 38 digits with the same scale.

    A sum that goes beyond its type fails the batch.
    """
    return Aggregate("sum", (column,), _bind_sum)


def mean(column: Input) -> Aggregate:
    """A double, also of decimals."""
    return Aggregate("mean", (column,), lambda values, name: Mean(values[0], f"{name}.mean"))


def _bind_sum(values: Sequence[Value], name: str) -> Function:
    (value,) = values
    if value.is_whole:
        return LongSum()
    if value.is_real:
        return RealSum()
    if isinstance(value.avro, Decimal):
        return DecimalSum(Decimal(f"{name}.decimal", _MOST_DIGITS, value.avro.scale))
    raise refused_input("sum", value, "numbers")


class _CheckedSum(Function):
    """A sum that can go beyond its type, in Spark or here.

    Spark's own sum wraps around or returns null, by its settings. ``try_sum`` always returns null, and the count
    tells this from a sum of nothing.
    """

    kind = "sum"

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [self.state.arrow, pa.int64()]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        return [F.try_sum(inputs[0]), F.count(inputs[0])]

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        new, count = partials
        if new.null_count:
            beyond = pc.and_(pc.is_null(new), pc.greater(count, 0))
            self._refuse(pc.index(beyond, True).as_py())
        return either(old, new, self._added(old, new))

    def _added(self, old: pa.Array, new: pa.Array) -> pa.Array:
        raise NotImplementedError

    def partials_of(self, state: pa.Array) -> list[pa.Array]:
        return [state, state.is_valid().cast(pa.int64())]

    def _refuse(self, row: int) -> None:
        if row >= 0:
            raise BadRowError(row, f"goes beyond the range of {self.output.simpleString()}")

    def finish(self, state: pa.Array) -> pa.Array:
        return state


@dataclass(frozen=True)
class LongSum(_CheckedSum):
    @property
    def definition(self) -> str:
        return "sum of long"

    @property
    def state(self) -> AvroType:
        return Nullable(LONG)

    @property
    def output(self) -> spark.DataType:
        return spark.LongType()

    def _added(self, old: pa.Array, new: pa.Array) -> pa.Array:
        try:
            return pc.add_checked(old, new)
        except pa.ArrowInvalid:
            wrapped = pc.add(old, new)
            changed_sign = pc.and_(*(pc.less(pc.bit_wise_xor(part, wrapped), 0) for part in (old, new)))
            self._refuse(pc.index(changed_sign, True).as_py())
            raise


@dataclass(frozen=True)
class DecimalSum(_CheckedSum):
    total: Decimal

    @property
    def definition(self) -> str:
        return f"sum of decimal with scale {self.total.scale}"

    @property
    def state(self) -> AvroType:
        return Nullable(self.total)

    @property
    def output(self) -> spark.DataType:
        return spark.DecimalType(self.total.precision, self.total.scale)

    def _added(self, old: pa.Array, new: pa.Array) -> pa.Array:
        wide = pa.decimal256(_MOST_DIGITS + 1, self.total.scale)
        added = pc.add(old.cast(wide), new.cast(self.state.arrow).cast(wide))
        try:
            return added.cast(self.state.arrow)
        except pa.ArrowInvalid:
            limit = pa.scalar(PlainDecimal((0, (1, *[0] * _MOST_DIGITS), -self.total.scale)), added.type)
            self._refuse(pc.index(pc.greater_equal(pc.abs(added), limit), True).as_py())
            raise


@dataclass(frozen=True)
class RealSum(Function):
    kind = "sum"

    @property
    def definition(self) -> str:
        return "sum of double"

    @property
    def state(self) -> AvroType:
        return Nullable(DOUBLE)

    @property
    def output(self) -> spark.DataType:
        return spark.DoubleType()

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [pa.float64()]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        return [F.sum(inputs[0].cast("double"))]

    @property
    def order_shows(self) -> bool:
        return True

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        (new,) = partials
        return either(old, new, pc.add(old, new))

    def finish(self, state: pa.Array) -> pa.Array:
        return state


@dataclass(frozen=True)
class Mean(Function):
    value: Value
    path: str

    kind = "mean"

    def __post_init__(self) -> None:
        if not self.value.is_number:
            raise refused_input("mean", self.value, "numbers")

    @property
    def definition(self) -> str:
        return "mean"

    @property
    def state(self) -> AvroType:
        return Record(self.path, (Field("sum", DOUBLE), Field("count", LONG)))

    @property
    def output(self) -> spark.DataType:
        return spark.DoubleType()

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [pa.float64(), pa.int64()]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        return [F.sum(inputs[0].cast("double")), F.count(inputs[0])]

    @property
    def order_shows(self) -> bool:
        return not self.value.is_small

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        columns = zip(old.flatten(), partials, (0.0, 0), strict=True)
        added = [pc.add(stored.fill_null(zero), new.fill_null(zero)) for stored, new, zero in columns]
        return pa.StructArray.from_arrays(added, fields=list(self.state.arrow))

    def partials_of(self, state: pa.Array) -> list[pa.Array]:
        found: list[pa.Array] = state.flatten()
        return found

    def finish(self, state: pa.Array) -> pa.Array:
        total, count = (column.fill_null(0).to_numpy() for column in state.flatten())
        some = count > 0
        return pa.array(np.divide(total, count, out=np.zeros(len(total)), where=some), mask=~some)
