"""``min`` and ``max``. As in Spark, nulls do not count, and NaN is larger than any other number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql import types as spark

from changelog_state.aggregation.avro.pieces import Mask
from changelog_state.aggregation.avro.types import AvroType, Nullable
from changelog_state.aggregation.functions.base import Aggregate, Function, Input, refused_input
from changelog_state.aggregation.functions.order import extreme
from changelog_state.aggregation.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Extreme", "max", "min"]


def min(column: Input) -> Aggregate:
    """The smallest value: a number, string, binary, boolean, date or timestamp."""
    return Aggregate("min", (column,), lambda values, name: Extreme(values[0], largest=False))


def max(column: Input) -> Aggregate:
    """The largest value: a number, string, binary, boolean, date or timestamp."""
    return Aggregate("max", (column,), lambda values, name: Extreme(values[0], largest=True))


@dataclass(frozen=True)
class Extreme(Function):
    value: Value
    largest: bool

    def __post_init__(self) -> None:
        if not self.value.is_simple:
            raise refused_input(self.kind, self.value, "a simple type")

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "max" if self.largest else "min"

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
        return [F.max(inputs[0]) if self.largest else F.min(inputs[0])]

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        (new,) = partials
        if not self.value.is_number:
            return extreme(old, new, largest=self.largest)
        if self.value.is_real and self.largest:  # Arrow prefers numbers to NaN
            found = np.maximum(*(column.fill_null(-np.inf).to_numpy() for column in (old, new)))
            neither = pc.and_(old.is_null(), new.is_null())
            return pa.array(found, mask=neither.to_numpy(zero_copy_only=False))
        return (pc.max_element_wise if self.largest else pc.min_element_wise)(old, new, skip_nulls=True)

    def finish(self, state: pa.Array) -> pa.Array:
        return state
