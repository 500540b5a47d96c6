"""``service.aggregate``: counts, sums and the like per key, without a Python function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from changelog_state.batches.base import Batches
from changelog_state.calls import Lateness
from changelog_state.durations import Duration
from changelog_state.windows import Hopping, Tumbling, WindowKind

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
        ``window``: ``Tumbling`` or ``Hopping``, by event time: results have a column ``window`` behind the key, with
        ``start`` and ``end``, as often as a window gets rows (``emit="update"``), or once, when the watermark has
        passed its end and its grace ("close"). Then it is gone, and rows that come later are dropped.
        """
        from changelog_state.aggregation.call import AggregateCall

        lateness = Lateness.of(event_time, watermark_delay, late if window is None else "accept")
        ends = None
        if window is not None:
            from changelog_state.aggregation.windows import WINDOW_START, WindowLateness, closing, in_windows

            policy = "drop" if late == "accept" else late
            lateness = WindowLateness.within(window, event_time, watermark_delay, policy)
            lateness.check(df)
            assert isinstance(window, (Tumbling, Hopping))
            assert event_time is not None
            df, ends = in_windows(df, window, event_time), closing(window, emit)
            key = [*((key,) if isinstance(key, str) else key), WINDOW_START]
        call = AggregateCall.of(
            df, batch_id, key, aggs, name, order_by, timeout, query_id, lateness, output_topic, ends
        )
        rows, batch = self._run(call, call.program(self._settings), lateness)
        return (rows, lateness.late_rows(df, batch.watermark_ms)) if late == "side_output" else rows
