"""An aggregation function has two halves.

In Spark: expressions that aggregate the rows of a batch, one row per key. In the task: merging these *partials* with
what is stored, whole columns at a time, and finishing the result. The second half knows nothing of Spark, and is what
goes to the tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql import types as spark

from changelog_state.aggregation.avro.pieces import Mask
from changelog_state.aggregation.avro.types import AvroType
from changelog_state.aggregation.values import Value
from changelog_state.errors import ChangelogStateError, ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Aggregate", "BadRowError", "Function", "Input", "arrived", "either", "refused_input"]

Input: TypeAlias = "str | Column"


class BadRowError(ChangelogStateError):
    """A merge cannot be done, because of this row of the batch. Whoever knows the keys makes a message of it."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


class Function(ABC):
    """One aggregate of known types."""

    kind: str
    """What its users call it."""

    @property
    @abstractmethod
    def definition(self) -> str:
        """What makes its stored state meaningful: the same text, the same state. Recorded with the schema."""

    @property
    @abstractmethod
    def state(self) -> AvroType: ...

    @property
    @abstractmethod
    def output(self) -> spark.DataType: ...

    @property
    @abstractmethod
    def partial_types(self) -> list[pa.DataType]:
        """Of the partials, as ``merge`` wants them."""

    @abstractmethod
    def partials(self, inputs: Sequence[Column], order: Sequence[Column]) -> list[Column]:
        """Aggregating expressions over the rows of a key in a batch; ``order``: what the rows are ordered by."""

    @abstractmethod
    def merge(self, old: pa.Array, known: Mask, partials: Sequence[pa.Array]) -> pa.Array:
        """The new state. ``old`` is null where ``known`` is false: there is nothing stored yet."""

    def partials_of(self, state: pa.Array) -> list[pa.Array]:
        """What rows that have this state gave: so a state is merged into another one."""
        return [state]

    @abstractmethod
    def finish(self, state: pa.Array) -> pa.Array:
        """The result, to be cast to the output's Arrow type."""

    @property
    def order_shows(self) -> bool:
        """Whether the order of the rows shows in the last digits of the result. Spark then sorts them."""
        return False


@dataclass(frozen=True)
class Aggregate:
    """What the functions ``count``, ``sum`` … return: a kind of aggregate, and of what."""

    kind: str
    inputs: tuple[Input, ...]
    bind: Callable[[Sequence[Value], str], Function] = field(repr=False)
    """Its function for inputs of these types, and for this aggregate's name."""
    takes_anything: bool = False
    """Nothing is kept of its inputs, so their types do not matter, and ``bind`` is not given them."""


def arrived(order: Sequence[Column], value: Column) -> Column:
    """A row's value with the row's place, so that rows can be compared, whatever order Spark has them in."""
    place = [column.alias(f"place{number}") for number, column in enumerate(order)]
    return F.struct(*place, value.alias("value"))


def either(old: pa.Array, new: pa.Array, combined: pa.Array) -> pa.Array:
    """Combined where there are both, which is where ``combined`` is not null; else the one that there is."""
    return pc.coalesce(combined, old, new) if combined.null_count else combined


def refused_input(kind: str, value: Value, takes: str) -> ConfigurationError:
    return ConfigurationError(
        f"{kind}() takes {takes}, and was given a column of type {value.spark.simpleString()}; cast it"
    )
