"""``approx_distinct``: how many different values there were, by a HyperLogLog sketch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql import types as spark

from changelog_state.aggregation.avro.pieces import Mask
from changelog_state.aggregation.avro.types import BYTES, AvroType
from changelog_state.aggregation.functions.base import Aggregate, Function, Input
from changelog_state.aggregation.functions.hyperloglog import (
    ENTRY_RANK_BITS,
    LARGEST_P,
    SMALLEST_P,
    entries_of,
    estimates,
    merged_sketches,
)
from changelog_state.aggregation.values import Value
from changelog_state.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Distinct", "approx_distinct"]

_ERROR = 1.04
"""Standard error times the square root of the number of registers."""


def approx_distinct(column: Input, *, rsd: float = 0.05) -> Aggregate:
    """The number of different values, nulls left out; ``rsd``: the relative standard error, as in Spark.

    A key's sketch takes at most as many bytes as registers are needed: 512 for 0.05, 4,096 for 0.02.
    """
    smallest, largest = (_ERROR / math.sqrt(1 << p) for p in (LARGEST_P, SMALLEST_P))
    if isinstance(rsd, bool) or not isinstance(rsd, (int, float)) or not smallest <= rsd <= largest:
        raise ConfigurationError(f"approx_distinct() is given rsd={rsd!r}; give {smallest:.4f} to {largest:.2f}")
    p = math.ceil(2 * math.log2(_ERROR / rsd))
    return Aggregate("approx_distinct", (column,), lambda values, name: Distinct(values[0], p))


@dataclass(frozen=True)
class Distinct(Function):
    value: Value
    p: int

    kind = "approx_distinct"

    @property
    def definition(self) -> str:
        return f"approx_distinct of {self.value.kept} with {1 << self.p} registers"

    @property
    def state(self) -> AvroType:
        return BYTES

    @property
    def output(self) -> spark.DataType:
        return spark.LongType()

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [pa.list_(pa.int32())]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        """The entries of a sketch. For one key at most some per register, however many rows it has."""
        (value,) = inputs
        if self.value.is_whole:
            value = value.cast("long")  # a hash is one of bytes: integers of all widths are to be the same
        rest_bits = 64 - self.p
        hashed = F.xxhash64(value)
        register = F.shiftrightunsigned(hashed, rest_bits)
        # The bit above the rest bounds the rank, and keeps the subtraction away from the smallest long.
        rest = hashed.bitwiseAND(F.lit((1 << rest_bits) - 1)).bitwiseOR(F.lit(1 << rest_bits))
        rank = F.bit_count(F.bitwise_not(rest).bitwiseAND(rest - 1)) + 1
        entry = F.shiftleft(register, ENTRY_RANK_BITS).bitwiseOR(rank.cast("long")).cast("int")
        return [F.collect_set(F.when(value.isNotNull(), entry))]

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        return merged_sketches(old.fill_null(b""), partials[0], self.p)

    def partials_of(self, state: pa.Array) -> list[pa.Array]:
        return [entries_of(state.fill_null(b""), self.p)]

    def finish(self, state: pa.Array) -> pa.Array:
        return pa.array(np.rint(estimates(state, self.p)).astype(np.int64))
