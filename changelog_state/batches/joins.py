"""``service.join``: rows of two inputs of one query, matched by key and time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Unpack, overload

from changelog_state.batches.base import Batches, BatchOptions
from changelog_state.calls import Call, Lateness
from changelog_state.durations import Duration
from changelog_state.errors import FunctionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from changelog_state.joins import How, Within

__all__ = ["JoinBatches"]


class JoinBatches(Batches):
    @overload
    def join(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        left: str,
        right: str,
        key: str | Sequence[str],
        within: Within,
        event_time: str,
        how: How = "inner",
        watermark_delay: Duration = 0,
        late: Literal["side_output"],
        tag: str = "input",
        **options: Unpack[BatchOptions],
    ) -> tuple[DataFrame, DataFrame]: ...

    @overload
    def join(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        left: str,
        right: str,
        key: str | Sequence[str],
        within: Within,
        event_time: str,
        how: How = "inner",
        watermark_delay: Duration = 0,
        late: Literal["accept", "drop"] = "drop",
        tag: str = "input",
        **options: Unpack[BatchOptions],
    ) -> DataFrame: ...

    def join(
        self,
        df: DataFrame,
        batch_id: int,
        *,
        left: str,
        right: str,
        key: str | Sequence[str],
        within: Within,
        event_time: str,
        how: How = "inner",
        watermark_delay: Duration = 0,
        late: Literal["accept", "drop", "side_output"] = "drop",
        tag: str = "input",
        **options: Unpack[BatchOptions],
    ) -> DataFrame | tuple[DataFrame, DataFrame]:
        """Rows of two inputs of ``union_inputs`` that have the same key and are at most ``within`` apart in time.

        Gives the key's columns, and for each input a column of its name with the row: ``select("orders.amount")``.
        Each pair comes out once. ``how``: with "left", "right" and "outer", a row that has met no partner comes out
        alone, once, when the watermark has passed the time in which one could have come. Then it leaves the state.
        ``within``: a length of time, or two: how much earlier, and how much later, the right row may be.
        ``late``: rows from before the watermark are dropped, or returned as a second DataFrame ("side_output"), or
        ("accept") matched with what is still there.
        """
        from changelog_state.arrangement import key_codec
        from changelog_state.inputs import input_columns
        from changelog_state.joins import join_of
        from changelog_state.task.stream_join import VARIABLES, stream_join_program

        if callable(late):
            raise FunctionError("late= is a function, but a join has no function of yours; use 'side_output'")
        lateness = Lateness.of(event_time, watermark_delay, late)
        lateness.check(df)
        key_columns = (key,) if isinstance(key, str) else tuple(key)
        key_codec(df, key_columns)  # says what is wrong with them
        join, schema = join_of(
            df.schema,
            (left, right),
            input_columns(df, tag, (left, right)),
            key_columns=key_columns,
            tag=tag,
            event_time=event_time,
            within=within,
            how=how,
        )
        call = Call(df, batch_id, key, schema, variables=VARIABLES, **options)
        rows, batch = self._run(call, stream_join_program(join), lateness)
        return (rows, lateness.late_rows(df, batch.watermark_ms)) if late == "side_output" else rows
