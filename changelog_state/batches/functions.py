"""Batches with a function of the user's: per key (``apply``), per row, per window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from changelog_state.batches.base import Batches, BatchOptions
from changelog_state.calls import Call, Lateness, LatePolicy
from changelog_state.durations import Duration
from changelog_state.errors import FunctionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from changelog_state.arrangement import OrderBy
    from changelog_state.kafka_output import KafkaOutput
    from changelog_state.window_calls import Emit
    from changelog_state.windows import WindowKind

__all__ = ["FunctionBatches"]


class FunctionBatches(Batches):
    @overload
    def apply(
        self,
        df: DataFrame,
        batch_id: int,
        func: Callable[..., Any],
        *,
        key: str | Sequence[str],
        schema: str | StructType,
        late: Literal["side_output"],
        partitioning: str = "hash",
        order_by: OrderBy = None,
        on_timer: Callable[..., Any] | None = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        timeout: float | None = None,
        query_id: str | None = None,
        output_topic: str | KafkaOutput | None = None,
    ) -> tuple[DataFrame, DataFrame]: ...

    @overload
    def apply(
        self,
        df: DataFrame,
        batch_id: int,
        func: Callable[..., Any],
        *,
        key: str | Sequence[str],
        schema: str | StructType,
        late: Literal["accept", "drop"] | Callable[..., Any] = "accept",
        partitioning: str = "hash",
        order_by: OrderBy = None,
        on_timer: Callable[..., Any] | None = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        timeout: float | None = None,
        query_id: str | None = None,
        output_topic: str | KafkaOutput | None = None,
    ) -> DataFrame: ...

    def apply(
        self,
        df: DataFrame,
        batch_id: int,
        func: Callable[..., Any],
        *,
        key: str | Sequence[str],
        schema: str | StructType,
        late: LatePolicy = "accept",
        partitioning: str = "hash",
        order_by: OrderBy = None,
        on_timer: Callable[..., Any] | None = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        timeout: float | None = None,
        query_id: str | None = None,
        output_topic: str | KafkaOutput | None = None,
    ) -> DataFrame | tuple[DataFrame, DataFrame]:
        """Run ``func(key, rows, state)`` once per key, and change the state exactly once.

        The change has happened when this returns. The result can be used any number of times until the next
        batch; ``timeout`` bounds the wait for partitions that must be restored first, in seconds.
        ``on_timer(key, name, at, state)`` is called for timers that are due. ``event_time``: the column that has
        the rows' time; the watermark follows it, ``watermark_delay`` behind. ``late``: what becomes of rows from
        before the watermark: "accept" them like others, "drop" them, "side_output" (they are returned as a second
        DataFrame), or a function to call instead of ``func``. ``output_topic``: the rows also go to this topic, in
        the same transactions as the state's changes; its name, or a ``KafkaOutput``.
        """
        from changelog_state.task.keyed import KeyedProgram

        lateness = Lateness.of(event_time, watermark_delay, late)
        for name, function in (("func", func), ("on_timer", on_timer)):
            if not callable(function) and (name == "func" or function is not None):
                raise FunctionError(f"{name} is {function!r}; give a function")
        program = KeyedProgram(func, on_timer, lateness.function)
        call = Call(df, batch_id, key, schema, partitioning, order_by, timeout, query_id, output_topic=output_topic)
        rows, batch = self._run(call, program, lateness)
        return (rows, lateness.late_rows(df, batch.watermark_ms)) if late == "side_output" else rows

    @overload
    def stateful_map(
        self,
        df: DataFrame,
        batch_id: int,
        func: Callable[..., Any],
        *,
        key: str | Sequence[str],
        schema: str | StructType,
        initial: Any = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        late: Literal["side_output"],
        **options: Unpack[BatchOptions],
    ) -> tuple[DataFrame, DataFrame]: ...

    @overload
    def stateful_map(
        self,
        df: DataFrame,
        batch_id: int,
        func: Callable[..., Any],
        *,
        key: str | Sequence[str],
        schema: str | StructType,
        initial: Any = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        late: Literal["accept", "drop"] | Callable[..., Any] = "accept",
        **options: Unpack[BatchOptions],
    ) -> DataFrame: ...

    def stateful_map(
        self,
        df: DataFrame,
        batch_id: int,
        func: Callable[..., Any],
        *,
        key: str | Sequence[str],
        schema: str | StructType,
        initial: Any = None,
        event_time: str | None = None,
        watermark_delay: Duration = 0,
        late: LatePolicy = "accept",
        **options: Unpack[BatchOptions],
    ) -> DataFrame | tuple[DataFrame, DataFrame]:
        """Run ``func(key, value, state) -> (output, new_state)`` once per row; ``value`` is the row as a dict.

        The state of a key is one value: any that ``state.set`` takes; outside it is found under the name "state".
        ``new_state`` None drops it. ``output``: None for no row, a dict for one, a list of dicts for several.
        ``initial``: the state of a key that has none: a value, or a function without arguments that makes one.
        Rows of a key come in the order of ``order_by``, or of their Kafka offsets. All else is as in ``apply``; a
        function given as ``late`` has the form of ``func``.
        """
        from changelog_state.task.row_map import row_map_program

        lateness = Lateness.of(event_time, watermark_delay, late)
        if not callable(func):
            raise FunctionError(f"func is {func!r}; give a function")
        program = row_map_program(func, initial, lateness.function)
        rows, batch = self._run(Call(df, batch_id, key, schema, **options), program, lateness)
        return (rows, lateness.late_rows(df, batch.watermark_ms)) if late == "side_output" else rows

    @overload
    def apply_windows(
        self,
        df: DataFrame,
        batch_id: int,
        func: Callable[..., Any],
        *,
        window: WindowKind,
        key: str | Sequence[str],
        schema: str | StructType,
        event_time: str,
        watermark_delay: Duration = 0,
        emit: Emit = "update",
        on_close: Callable[..., Any] | None = None,
        late: Literal["side_output"],
        **options: Unpack[BatchOptions],
    ) -> tuple[DataFrame, DataFrame]: ...

    @overload
    def apply_windows(
        self,
        df: DataFrame,
        batch_id: int,
        func: Callable[..., Any],
        *,
        window: WindowKind,
        key: str | Sequence[str],
        schema: str | StructType,
        event_time: str,
        watermark_delay: Duration = 0,
        emit: Emit = "update",
        on_close: Callable[..., Any] | None = None,
        late: Literal["accept", "drop"] | Callable[..., Any] = "drop",
        **options: Unpack[BatchOptions],
    ) -> DataFrame: ...

    def apply_windows(
        self,
        df: DataFrame,
        batch_id: int,
        func: Callable[..., Any],
        *,
        window: WindowKind,
        key: str | Sequence[str],
        schema: str | StructType,
        event_time: str,
        watermark_delay: Duration = 0,
        emit: Emit = "update",
        on_close: Callable[..., Any] | None = None,
        late: LatePolicy = "drop",
        **options: Unpack[BatchOptions],
    ) -> DataFrame | tuple[DataFrame, DataFrame]:
        """Run ``func(key, window, rows, state)`` once per key and window that has new rows.

        ``window``: ``Tumbling``, ``Hopping``, ``Sliding`` or ``Session``; to the function it has ``start`` and
        ``end``. ``state`` is the window's own. When the watermark has passed its end and its grace, the window is
        closed: ``on_close(key, window, state)`` is called once, may give rows, too, and the state is removed.
        ``emit``: with "close" only ``on_close`` gives rows.
        ``late``: what becomes of rows whose window is closed; of several windows, each counts for itself. They are
        dropped, or also returned as a second DataFrame ("side_output") in which ``window`` says for which one it was
        too late; or ("accept") open the window anew, with empty state; or a function is called instead of ``func``,
        whose changes of the state do not stay.
        From outside a window's state has the key (key, start in milliseconds). All else is as in ``apply``.
        """
        from changelog_state.late_output import late_field, split_late
        from changelog_state.window_calls import windowed

        program, lateness = windowed(
            func,
            window=window,
            event_time=event_time,
            watermark_delay=watermark_delay,
            emit=emit,
            on_close=on_close,
            late=late,
        )
        aside = (late_field(df),) if late == "side_output" else ()
        call = Call(df, batch_id, key, schema, more_key_types=program.more_key_types, more_fields=aside, **options)
        rows, _ = self._run(call, program, lateness)
        return split_late(rows) if late == "side_output" else rows
