"""What one call of ``aggregate`` computes: its functions, and the one record per key that holds their state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from pyspark.sql.types import DataType, StructField, StructType

from changelog_state.aggregation.avro.record_codec import RecordCodec
from changelog_state.aggregation.avro.types import Field, Record
from changelog_state.aggregation.functions.base import Aggregate, Function
from changelog_state.aggregation.values import FIELD_NAME, value_of
from changelog_state.errors import ConfigurationError

__all__ = ["DEFINITION", "NAMESPACE", "Plan", "check_aggregates", "plan_of"]

DEFINITION = "aggregate"
"""The attribute of a field in the schema that tells what its content means."""
NAMESPACE = "changelog_state.aggregates"
"""Of the names of all Avro types here."""


@dataclass(frozen=True)
class Plan:
    functions: Mapping[str, Function]
    """By name, which is that of the output column, too."""
    hidden: tuple[str, ...] = ()
    """Kept like the others, and no output."""

    @cached_property
    def codec(self) -> RecordCodec:
        """The name of the record depends on the definitions. So the fingerprint of its schema does, too, for which
        types alone count: without that a maximum could be taken for a sum."""
        definitions = [(name, function.definition) for name, function in self.functions.items()]
        digest = blake2b(json.dumps(definitions).encode(), digest_size=4).hexdigest()
        fields = tuple(
            Field(name, function.state, ((DEFINITION, function.definition),))
            for name, function in self.functions.items()
        )
        return RecordCodec(Record(f"{NAMESPACE}.Record_{digest}", fields))

    @property
    def output(self) -> StructType:
        """The columns behind those of the key."""
        shown = [(name, function) for name, function in self.functions.items() if name not in self.hidden]
        return StructType([StructField(name, function.output) for name, function in shown])


def check_aggregates(aggregates: Mapping[str, Aggregate]) -> None:
    if not aggregates:
        raise ConfigurationError("aggs is empty; give at least one aggregate, as in aggs={'n': cs.count()}")
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise ConfigurationError(
                f"aggregate {name!r} is {aggregate!r}; use cs.count(), cs.sum('amount') and the like"
            )
        if not isinstance(name, str) or FIELD_NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"an aggregate is called {name!r}, which Avro does not take for a name; use letters, digits and "
                "underscores, and rename the column of the result"
            )


def plan_of(
    aggregates: Mapping[str, Aggregate], types: Mapping[str, Sequence[DataType]], hidden: tuple[str, ...] = ()
) -> Plan:
    """``types``: those of each aggregate's inputs."""
    functions = {}
    for name, aggregate in aggregates.items():
        path = f"{NAMESPACE}.{name}"
        kinds = () if aggregate.takes_anything else types[name]
        values = [
            value_of(kind, f"{path}.{role}", f"{role} of aggregate {name!r}")
            for role, kind in zip(("value", "by"), kinds, strict=False)
        ]
        functions[name] = aggregate.bind(values, path)
    return Plan(functions, hidden)
