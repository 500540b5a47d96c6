"""``service.aggregate``: counts, sums and the like per key, without a Python function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from changelog_state.batches.base import Batches
from changelog_state.calls import Lateness
from changelog_state.durations import Duration
from changelog_state.windows import WindowKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from changelog_state.aggregation.functions.base import Aggregate
    from changelog_state.arrangement import OrderBy
    from changelog_state.kafka_output import KafkaOutput
    from changelog_state.window_calls import Emit

__all__ = ["AggregateBatches"]


class AggregateBatches(Batches):
    @overload
    def aggregate(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        key: str | Sequence[str],
        aggs: Mapping[str, Aggregate],
        late: Literal["side_output"],
        window: WindowKind | None = None,
        emit: Emit = "update",
        name: str = "aggregates",
        order_by: OrderBy = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        timeout: float | None = None,
        query_id: str | None = None,
        output_topic: str | KafkaOutput | None = None,
    ) -> tuple[DataFrame, DataFrame]: ...

    @overload
    def aggregate(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        key: str | Sequence[str],
        aggs: Mapping[str, Aggregate],
        late: Literal["accept", "drop"] = "accept",
        window: WindowKind | None = None,
        emit: Emit = "update",
        name: str = "aggregates",
        order_by: OrderBy = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        timeout: float | None = None,
        query_id: str | None = None,
        output_topic: str | KafkaOutput | None = None,
    ) -> DataFrame: ...

    def aggregate(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        key: str | Sequence[str],
        aggs: Mapping[str, Aggregate],
        late: Literal["accept", "drop", "side_output"] = "accept",
        window: WindowKind | None = None,
        emit: Emit = "update",
        name: str = "aggregates",
        order_by: OrderBy = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        timeout: float | None = None,
        query_id: str | None = None,
        output_topic: str | KafkaOutput | None = None,
    ) -> DataFrame | tuple[DataFrame, DataFrame]:
        """Aggregates over all rows that a key ever had, kept as state; no function of Python runs for a key.

        Returns a row for each key of the batch: the key's columns, and a column per entry of ``aggs``, as it is now.
        Kept is one record per key, under the state name ``name``. ``order_by``: what ``first``, ``last`` and
        ``collect`` take for the order of arrival within a batch. The other arguments are those of ``apply``.
        ``window``: ``Tumbling``, ``Hopping`` or ``Session``, by event time: results have a column ``window`` behind
        the key, with ``start`` and ``end``, as often as a window gets rows (``emit="update"``), or once, when the
        watermark has passed its end and its grace ("close"). Then it is gone, and rows that come later are dropped.
        """
        from changelog_state.aggregation.call import AggregateCall
        from changelog_state.aggregation.over import Over
        from changelog_state.aggregation.windows import in_windows

        if window is None:
            over = Over(df, key, aggs, Lateness.of(event_time, watermark_delay, late))
        else:
            over = in_windows(window, df, key, aggs, emit, event_time, watermark_delay, late)
        call = AggregateCall.of(over, batch_id, name, order_by, timeout, query_id, output_topic)
        rows, batch = self._run(call, call.program(self._settings), over.lateness)
        return (rows, over.lateness.late_rows(df, batch.watermark_ms)) if late == "side_output" else rows
