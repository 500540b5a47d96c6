"""Windows of aggregates on the driver: a row per window that it belongs to, and which of these come too late."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

from changelog_state.aggregation.closing import Closing
from changelog_state.arrangement import column_named
from changelog_state.calls import Lateness
from changelog_state.durations import Duration
from changelog_state.errors import ConfigurationError
from changelog_state.settings import check_choice
from changelog_state.task.spec import EventTime
from changelog_state.window_calls import Emit
from changelog_state.windows import Hopping, Tumbling, WindowKind

__all__ = ["WINDOW", "WINDOW_START", "WindowLateness", "closing", "in_windows"]

WINDOW_START = "__changelog_state_window"
"""The column of the key that a window adds: when it begins, in milliseconds since 1970."""
WINDOW = "window"
"""The column of results, as Spark calls it."""


@dataclass(frozen=True)
class WindowLateness(Lateness):
    """A row is late for a window that is closed; another one that it belongs to may be open."""

    closes_after_ms: int = 0
    """The window's start."""

    @classmethod
    def within(cls, window: WindowKind, column: str | None, delay: Duration, late: str) -> WindowLateness:
        if not isinstance(window, (Tumbling, Hopping)):
            raise ConfigurationError(
                f"aggregate() has Tumbling and Hopping windows, not {type(window).__name__}; use apply_windows()"
            )
        if column is None:
            raise ConfigurationError("windows need to know when rows happened; give event_time= the column's name")
        if late != "drop":
            raise ConfigurationError(
                f"late is {late!r}, but a window that is closed is gone; use late='drop', which counts what comes "
                "too late, and grace= of the window to wait longer"
            )
        known = Lateness.of(column, delay, "drop")
        return cls(EventTime(column, "drop"), known.delay_ms, None, window.size_ms + window.grace_ms)

    def is_late(self, df: DataFrame, watermark_ms: int | None) -> Column:
        if watermark_ms is None:
            return F.lit(False)
        return F.col(WINDOW_START) + F.lit(self.closes_after_ms) <= F.lit(watermark_ms)


def in_windows(df: DataFrame, window: Tumbling | Hopping, event_time: str) -> DataFrame:
    """Each row once for every window that it belongs to, with the window's start."""
    for name in (WINDOW, WINDOW_START):
        if name in df.columns:
            raise ConfigurationError(f"the DataFrame has a column {name!r}; results have one of this name: rename it")
    if dict(df.dtypes)[event_time] != "timestamp":
        raise ConfigurationError(f"event_time column {event_time!r} of windows is no timestamp; cast it to one")
    every_ms = window.every_ms if isinstance(window, Hopping) else window.size_ms
    at = F.floor(F.unix_micros(column_named(event_time).cast("timestamp")) / 1000).cast("long")
    last = at - F.pmod(at - F.lit(window.offset_ms), F.lit(every_ms))
    starts = [
        F.when(last - F.lit(back) + F.lit(window.size_ms) > at, last - F.lit(back))
        for back in range(0, window.size_ms, every_ms)
    ]
    # A row without a time must reach its task, which refuses it: exploding nothing would lose it.
    whole = F.when(at.isNull(), F.array(F.lit(0).cast("long"))).otherwise(F.array_compact(F.array(*starts)))
    return df.withColumn(WINDOW_START, F.explode(whole))


def closing(window: Tumbling | Hopping, emit: Emit) -> Closing:
    check_choice("emit", emit, ("update", "close"))
    return Closing(window.size_ms, window.grace_ms, emit)
