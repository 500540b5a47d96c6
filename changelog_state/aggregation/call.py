"""``aggregate`` as a call like others: its rows come aggregated by Spark, and its program merges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StructField, StructType, TimestampType

from changelog_state.aggregation.closing import Closing
from changelog_state.aggregation.functions.base import Aggregate
from changelog_state.aggregation.plan import Plan, check_aggregates, plan_of
from changelog_state.aggregation.program import AggregateProgram
from changelog_state.calls import Call, Lateness
from changelog_state.codec.entries import name_suffix
from changelog_state.errors import ConfigurationError, InvalidKeyError
from changelog_state.kafka_output import KafkaOutput
from changelog_state.settings import ServiceSettings
from changelog_state.task.spec import EventTime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from changelog_state.arrangement import Arranged, OrderBy

__all__ = ["AggregateCall"]

_WINDOW = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])


@dataclass(frozen=True, kw_only=True)
class AggregateCall(Call):
    aggregates: Mapping[str, Aggregate]
    types: Mapping[str, Sequence[DataType]]
    plan: Plan
    name: str
    lateness: Lateness
    closing: Closing | None = None

    @classmethod
    def of(
        cls,
        df: DataFrame,
        batch_id: int,
        key: str | Sequence[str],
        aggregates: Mapping[str, Aggregate],
        name: str,
        order_by: OrderBy,
        timeout: float | None,
        query_id: str | None,
        lateness: Lateness,
        output_topic: str | KafkaOutput | None,
        closing: Closing | None = None,
    ) -> AggregateCall:
        from changelog_state.aggregation.frame import input_types

        check_aggregates(aggregates)
        if lateness.function is not None:
            raise ConfigurationError(
                "late= is a function, and aggregates call none; use 'accept', 'drop' or 'side_output'"
            )
        types = input_types(df, aggregates)
        plan = plan_of(aggregates, types)
        return cls(
            df=df,
            batch_id=batch_id,
            key=key,
            schema=_schema(df, (key,) if isinstance(key, str) else tuple(key), plan, closing),
            order_by=order_by,
            timeout=timeout,
            query_id=query_id,
            output_topic=output_topic,
            aggregates=aggregates,
            types=types,
            plan=plan,
            name=name,
            lateness=lateness,
            closing=closing,
        )

    def program(self, settings: ServiceSettings) -> AggregateProgram:
        name_suffix(self.name)
        if self.name in settings.variables:
            raise ConfigurationError(f"name is {self.name!r}, which state= declares; give another name")
        known = self.lateness.event_time
        if settings.lifetime is not None and settings.lifetime.by_event_time and known is None:
            raise ConfigurationError(
                "a ttl by event time needs to know the rows' event time; give event_time= with the column that has it"
            )
        drop_late = known is not None and known.late == "drop"
        return AggregateProgram(self.plan, self.name, drop_late, self.closing)

    def event_time(self, lateness: Lateness) -> EventTime | None:
        """Tasks see the latest of several rows, and cannot tell which ones were late."""
        return None if lateness.event_time is None else replace(lateness.event_time, late="accept")

    @property
    def record_key(self) -> tuple[str, ...]:
        return self.key_columns if self.closing is None else self.key_columns[:-1]

    def arranged(self, partitions: int) -> Arranged:
        from changelog_state.aggregation.frame import aggregated

        return aggregated(self, partitions)


def _schema(df: DataFrame, key_columns: Sequence[str], plan: Plan, closing: Closing | None) -> StructType:
    missing = sorted(set(key_columns) - set(df.columns))
    if missing:
        raise InvalidKeyError(
            f"key columns {missing} are not in the DataFrame, which has {df.columns}; give key= one of these, or a "
            "list of them"
        )
    twice = sorted(set(key_columns) & set(plan.functions))
    if twice:
        raise ConfigurationError(f"aggregates are called {twice} like columns of the key; rename them")
    keys = [StructField(name, df.schema[name].dataType) for name in key_columns]
    if closing is not None:
        keys[-1] = StructField("window", _WINDOW)
    return StructType([*keys, *plan.output.fields])
