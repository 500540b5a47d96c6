"""``collect`` and ``top``: bounded lists. As in Spark, nulls are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql import types as spark

from changelog_state.aggregation.avro.pieces import Mask
from changelog_state.aggregation.avro.types import Array, AvroType, Field, Record
from changelog_state.aggregation.functions.base import Aggregate, Function, Input, arrived
from changelog_state.aggregation.functions.lists import joined_lists, like_lists, shortened_lists
from changelog_state.aggregation.values import Value
from changelog_state.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["ArrivedList", "SortedList", "collect", "top"]


def collect(column: Input, k: int, *, keep: str = "newest", by: Input | None = None) -> Aggregate:
    """Up to ``k`` values, oldest first: the newest ones, or with ``keep="oldest"`` the first ones that came.

    Older and newer by ``by``, where equal by the value itself; without it by arrival.
    """
    if keep not in ("newest", "oldest"):
        raise ConfigurationError(f"keep is {keep!r}; use 'newest' or 'oldest'")
    newest = keep == "newest"
    _check_length("collect", k)
    if by is None:
        return Aggregate("collect", (column,), lambda values, name: ArrivedList(values[0], k, newest))
    return Aggregate(
        "collect",
        (column, by),
        lambda values, name: SortedList(
            "collect", values[0], values[1], f"{name}.item", k, descending=False, newest=newest
        ),
    )


def top(column: Input, k: int, *, by: Input | None = None) -> Aggregate:
    """The ``k`` largest values, largest first; or the values with the ``k`` largest ``by``, where equal the larger
    values."""
    _check_length("top", k)

    def bind(values: Sequence[Value], name: str) -> Function:
        order = values[1] if by is not None else None
        return SortedList("top", values[0], order, f"{name}.item", k, descending=True, newest=False)

    return Aggregate("top", (column,) if by is None else (column, by), bind)


def _check_length(kind: str, k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ConfigurationError(f"{kind}() is given k={k!r}; give a whole number of at least 1")


@dataclass(frozen=True)
class ArrivedList(Function):
    """In order of arrival."""

    value: Value
    k: int
    newest: bool

    kind = "collect"

    @property
    def definition(self) -> str:
        return f"collect {'newest' if self.newest else 'oldest'} of {self.value.kept}"

    @property
    def state(self) -> AvroType:
        return Array(self.value.avro)

    @property
    def output(self) -> spark.DataType:
        return spark.ArrayType(self.value.spark)

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [self.state.arrow]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        (value,) = inputs
        if not order:
            collected = F.collect_list(value)
            return [_ends(collected, self.k) if self.newest else F.slice(collected, 1, self.k)]
        rows = F.collect_list(F.when(value.isNotNull(), arrived(order, value)))
        return [_sorted_slice(rows, self.k, descending=False, newest=self.newest)["value"]]

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        return joined_lists(old, partials[0], self.k, sort=None, newest=self.newest)

    def finish(self, state: pa.Array) -> pa.Array:
        state = shortened_lists(state, self.k, newest=self.newest)
        return like_lists(state, state.flatten())


@dataclass(frozen=True)
class SortedList(Function):
    """Sorted by another column, then by the value; or by the value alone."""

    kind: str
    value: Value
    by: Value | None
    path: str
    k: int
    descending: bool
    newest: bool

    @property
    def definition(self) -> str:
        by = "" if self.by is None else f" by {self.by.kept}"
        kept = "" if self.descending else " newest" if self.newest else " oldest"
        return f"{self.kind}{kept} of {self.value.kept}{by}"

    @property
    def state(self) -> AvroType:
        if self.by is None:
            return Array(self.value.avro)
        return Array(Record(self.path, (Field("by", self.by.avro), Field("value", self.value.avro))))

    @property
    def output(self) -> spark.DataType:
        return spark.ArrayType(self.value.spark)

    @property
    def partial_types(self) -> list[pa.DataType]:
        return [self.state.arrow]

    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        item = inputs[0]
        if self.by is not None:
            counts = inputs[0].isNotNull() & inputs[1].isNotNull()
            item = F.when(counts, F.struct(inputs[1].alias("by"), inputs[0].alias("value")))
        return [_sorted_slice(F.collect_list(item), self.k, descending=self.descending, newest=self.newest)]

    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        sort = "descending" if self.descending else "ascending"
        return joined_lists(old, partials[0], self.k, sort=sort, newest=self.newest)

    def finish(self, state: pa.Array) -> pa.Array:
        state = shortened_lists(state, self.k, newest=self.newest)
        if self.by is None:
            return like_lists(state, state.flatten())
        _, values = state.flatten().flatten()
        return like_lists(state, values)


def _sorted_slice(rows: Column, k: int, *, descending: bool, newest: bool) -> Column:
    """The part of the batch's rows that can matter, so that no more than ``k`` per key leave Spark."""
    if descending or not newest:
        return F.slice(F.sort_array(rows, asc=not descending), 1, k)
    return F.reverse(F.slice(F.sort_array(rows, asc=False), 1, k))


def _ends(rows: Column, k: int) -> Column:
    """The last ``k``. Spark's slice gives nothing if it would have to begin before the list."""
    return F.slice(rows, F.greatest(F.size(rows) - k + 1, F.lit(1)), k)
