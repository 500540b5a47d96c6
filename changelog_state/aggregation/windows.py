"""Windows of aggregates on the driver: what becomes of a call's rows, key and aggregates; which rows are late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from changelog_state.aggregation.closing import Closing
from changelog_state.aggregation.columns import FIRST, LAST, LAST_WINDOW, WINDOW_START
from changelog_state.aggregation.functions import extremes
from changelog_state.aggregation.functions.base import Aggregate
from changelog_state.aggregation.over import Over, Sessions
from changelog_state.arrangement import column_named
from changelog_state.calls import Lateness
from changelog_state.durations import Duration
from changelog_state.errors import ConfigurationError
from changelog_state.settings import check_choice
from changelog_state.task.spec import EventTime
from changelog_state.window_calls import Emit, check_window
from changelog_state.windows import Hopping, Session, Sliding, Tumbling, WindowKind

__all__ = ["WindowLateness", "in_windows"]

_WINDOW = "window"
"""The column of results, as Spark calls it."""
_AT = "__changelog_state_at"


@dataclass(frozen=True)
class WindowLateness(Lateness):
    """A row is late for a window that is closed; another one that it belongs to may be open."""

    closes_after_ms: int = 0
    """The window's start."""

    def is_late(self, df: DataFrame, watermark_ms: int | None) -> Column:
        if watermark_ms is None:
            return F.lit(False)
        return F.col(WINDOW_START) + F.lit(self.closes_after_ms) <= F.lit(watermark_ms)


def in_windows(
    window: WindowKind,
    df: DataFrame,
    key: str | Sequence[str],
    aggregates: Mapping[str, Aggregate],
    emit: Emit,
    event_time: str | None,
    delay: Duration,
    late: str,
) -> Over:
    check_window(window)
    check_choice("emit", emit, ("update", "close"))
    _check(df, aggregates, window, event_time, late)
    assert event_time is not None
    lateness = Lateness.of(event_time, delay, "drop")
    lateness.check(df)
    if dict(df.dtypes)[event_time] != "timestamp":
        raise ConfigurationError(f"event_time column {event_time!r} of windows is no timestamp; cast it to one")
    at = F.unix_millis(column_named(event_time))
    if isinstance(window, Session):
        judged = Lateness(EventTime(event_time, "judged"), lateness.delay_ms)
        bounds = {FIRST: extremes.min(_AT), LAST: extremes.max(_AT)}
        with_bounds = {**aggregates, **bounds}
        return Over(df.withColumn(_AT, at), key, with_bounds, judged, Sessions(window, emit), tuple(bounds))
    assert isinstance(window, (Tumbling, Hopping))
    known = WindowLateness(EventTime(event_time, "drop"), lateness.delay_ms, None, window.size_ms + window.grace_ms)
    with_window = (*((key,) if isinstance(key, str) else key), WINDOW_START)
    closing = Closing(window.size_ms, window.grace_ms, emit)
    return Over(_exploded(df, window, at), with_window, aggregates, known, closing)


def _check(
    df: DataFrame, aggregates: Mapping[str, Aggregate], window: WindowKind, event_time: str | None, late: str
) -> None:
    if isinstance(window, Sliding):
        raise ConfigurationError(
            "aggregate() has Tumbling, Hopping and Session windows, not Sliding; use apply_windows()"
        )
    if isinstance(window, Session) and window.merge is not None:
        raise ConfigurationError("aggregate() merges sessions by itself; leave out Session(merge=)")
    if event_time is None:
        raise ConfigurationError("windows need to know when rows happened; give event_time= the column's name")
    if late not in ("accept", "drop"):
        raise ConfigurationError(
            f"late is {late!r}, but a window that is closed is gone; use late='drop', which counts what comes "
            "too late, and grace= of the window to wait longer"
        )
    ours = {_WINDOW, WINDOW_START, LAST_WINDOW, FIRST, LAST, _AT}
    for name in (name for name in (*df.columns, *aggregates) if name in ours):
        what = "aggregate" if name in aggregates else "column"
        raise ConfigurationError(f"there is {what} {name!r}, and windows have one of this name; rename it")


def _exploded(df: DataFrame, window: Tumbling | Hopping, at: Column) -> DataFrame:
    """Each row once for every window that it belongs to, with the window's start."""
    every_ms = window.every_ms if isinstance(window, Hopping) else window.size_ms
    last = at - F.pmod(at - F.lit(window.offset_ms), F.lit(every_ms))
    starts = [
        F.when(last - F.lit(back) + F.lit(window.size_ms) > at, last - F.lit(back))
        for back in range(0, window.size_ms, every_ms)
    ]
    # A row without a time must reach its task, which refuses it: exploding nothing would lose it.
    whole = F.when(at.isNull(), F.array(F.lit(0).cast("long"))).otherwise(F.array_compact(F.array(*starts)))
    exploded = df.withColumn(WINDOW_START, F.explode(whole))
    return exploded.withColumn(LAST_WINDOW, F.coalesce(F.col(WINDOW_START) == last, F.lit(True)))
