"""``variance`` and ``stddev``, of the sample as Spark's are: null for a single value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql import types as spark

from changelog_state.aggregation.avro.pieces import Mask
from changelog_state.aggregation.avro.types import DOUBLE, LONG, AvroType, Field, Record
from changelog_state.aggregation.functions.base import Aggregate, Function, Input, refused_input
from changelog_state.aggregation.values import Value

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Variance", "stddev", "variance"]


def variance(column: Input) -> Aggregate:
    """The sample variance."""
    return Aggregate("variance", (column,), lambda values, name: Variance(values[0], f"{name}.moments", False))


def stddev(column: Input) -> Aggregate:
    """The sample standard deviation."""
    return Aggregate("stddev", (column,), lambda values, name: Variance(values[0], f"{name}.moments", True))


@dataclass(frozen=True)
class Variance(Function):
    """Count, mean, and sum of squared differences from it, merged as Chan, Golub and LeVeque do."""

    value: Value
    path: str
    root: bool

    kind = "variance"

    def __post_init__(self) -> None:
        if not self.value.is_number:
            raise refused_input("stddev" if self.root else "variance", self.value, "numbers")

    @property
    def definition(self) -> str:
        return "moments"

    @property
    def state(self) -> AvroType:
        return Record(self.path, (Field("count", LONG), Field("mean", DOUBLE), Field("m2", DOUBLE)))

    @property
    def output(self) -> spark.DataType:
        return spark.DoubleType()

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [pa.int64(), pa.float64(), pa.float64()]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        value, count = inputs[0].cast("double"), F.count(inputs[0])
        return [count, F.avg(value), F.var_pop(value) * count]

    @property
    def order_shows(self) -> bool:
        return True

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        count, mean, m2 = (column.fill_null(0).to_numpy() for column in old.flatten())
        new_count, new_mean, new_m2 = (column.fill_null(0).to_numpy() for column in partials)
        total = count + new_count
        share = np.divide(new_count, total, out=np.zeros(len(total)), where=total > 0)
        with np.errstate(all="ignore"):  # infinities and NaN in the data go on as they do in Spark
            delta = new_mean - mean
            # A side without values has nothing to say, also if the other one is infinite.
            both = (count > 0) & (new_count > 0)
            mean = np.where(both, mean + delta * share, np.where(new_count > 0, new_mean, mean))
            m2 = np.where(both, m2 + new_m2 + delta * delta * count * share, np.where(new_count > 0, new_m2, m2))
        return pa.StructArray.from_arrays(
            [pa.array(total), pa.array(mean), pa.array(m2)], fields=list(self.state.arrow)
        )

    def partials_of(self, state: pa.Array) -> list[pa.Array]:
        found: list[pa.Array] = state.flatten()
        return found

    def finish(self, state: pa.Array) -> pa.Array:
        count, _, m2 = (column.fill_null(0).to_numpy() for column in state.flatten())
        some = count > 1
        found = np.divide(m2, count - 1, out=np.zeros(len(m2)), where=some)
        return pa.array(np.sqrt(found) if self.root else found, mask=~some)
