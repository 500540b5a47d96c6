"""``count``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql import types as spark

from changelog_state.aggregation.avro.pieces import Mask
from changelog_state.aggregation.avro.types import LONG, AvroType
from changelog_state.aggregation.functions.base import Aggregate, Function, Input

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Count", "count"]


def count(column: Input | None = None) -> Aggregate:
    """The number of rows; with a column, of those in which it is not null."""
    inputs = () if column is None else (column,)
    return Aggregate("count", inputs, lambda values, name: Count(), takes_anything=True)


@dataclass(frozen=True)
class Count(Function):
    kind = "count"

    @property
    def definition(self) -> str:
        return "count"

    @property
    def state(self) -> AvroType:
        return LONG

    @property
    def output(self) -> spark.DataType:
        return spark.LongType()

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [pa.int64()]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        return [F.count(inputs[0] if inputs else F.lit(1))]

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        (new,) = partials
        return pc.add_checked(old.fill_null(0) if old.null_count else old, new)

    def finish(self, state: pa.Array) -> pa.Array:
        return state.fill_null(0)
