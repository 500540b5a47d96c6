"""``aggregate`` as a call like others: its rows come aggregated by Spark, and its program merges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StructField, StructType, TimestampType

from changelog_state.aggregation.closing import Closing
from changelog_state.aggregation.functions.base import Aggregate
from changelog_state.aggregation.over import Over, Sessions
from changelog_state.aggregation.plan import Plan, check_aggregates, plan_of
from changelog_state.aggregation.program import AggregateProgram
from changelog_state.aggregation.sessions import SessionProgram
from changelog_state.calls import Call, Lateness
from changelog_state.codec.entries import name_suffix
from changelog_state.errors import ConfigurationError, InvalidKeyError
from changelog_state.kafka_output import KafkaOutput
from changelog_state.settings import ServiceSettings
from changelog_state.task.spec import EventTime
from changelog_state.task.windowed import WINDOW_TYPES

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
    windows: Closing | Sessions | None = None

    @classmethod
    def of(
        cls,
        over: Over,
        batch_id: int,
        name: str,
        order_by: OrderBy,
        timeout: float | None,
        query_id: str | None,
        output_topic: str | KafkaOutput | None,
    ) -> AggregateCall:
        from changelog_state.aggregation.frame import check_order, input_types

        check_aggregates({name: each for name, each in over.aggregates.items() if name not in over.hidden})
        if over.lateness.function is not None:
            raise ConfigurationError(
                "late= is a function, and aggregates call none; use 'accept', 'drop' or 'side_output'"
            )
        check_order(order_by)
        types = input_types(over.df, over.aggregates)
        plan = plan_of(over.aggregates, types, over.hidden)
        key_columns = (over.key,) if isinstance(over.key, str) else tuple(over.key)
        return cls(
            df=over.df,
            batch_id=batch_id,
            key=over.key,
            schema=_schema(over.df, key_columns, plan, over.windows),
            order_by=order_by,
            timeout=timeout,
            query_id=query_id,
            output_topic=output_topic,
            aggregates=over.aggregates,
            types=types,
            plan=plan,
            name=name,
            lateness=over.lateness,
            windows=over.windows,
            more_key_types=WINDOW_TYPES if isinstance(over.windows, Sessions) else (),
        )

    def program(self, settings: ServiceSettings) -> AggregateProgram | SessionProgram:
        name_suffix(self.name)
        if self.name in settings.variables:
            raise ConfigurationError(f"name is {self.name!r}, which state= declares; give another name")
        known = self.lateness.event_time
        if settings.lifetime is not None and settings.lifetime.by_event_time and known is None:
            raise ConfigurationError(
                "a ttl by event time needs to know the rows' event time; give event_time= with the column that has it"
            )
        if isinstance(self.windows, Sessions):
            return SessionProgram(self.plan, self.name, self.windows.kind, self.windows.emit)
        drop_late = known is not None and known.late == "drop"
        return AggregateProgram(self.plan, self.name, drop_late, self.windows)

    def event_time(self, lateness: Lateness) -> EventTime | None:
        """Tasks see the latest of several rows, and cannot tell which ones were late, but for sessions."""
        known = lateness.event_time
        return known if known is None or known.late == "judged" else replace(known, late="accept")

    @property
    def record_key(self) -> tuple[str, ...]:
        return self.key_columns[:-1] if isinstance(self.windows, Closing) else self.key_columns

    def arranged(self, partitions: int) -> Arranged:
        from changelog_state.aggregation.frame import aggregated

        return aggregated(self, partitions)


def _schema(df: DataFrame, key_columns: Sequence[str], plan: Plan, windows: Closing | Sessions | None) -> StructType:
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
    if windows is not None:
        of_user = keys[:-1] if isinstance(windows, Closing) else keys
        keys = [*of_user, StructField("window", _WINDOW)]
    return StructType([*keys, *plan.output.fields])
