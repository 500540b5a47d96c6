"""The user's functions for windows, and the watermark by which windows are closed and rows are late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from changelog_state.errors import FunctionError
from changelog_state.task.grouping import Row
from changelog_state.task.key_state import rows_of
from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.spec import LATE_COLUMN
from changelog_state.task.window_state import WindowState
from changelog_state.windows import Window, WindowKind

__all__ = ["TIME", "LatePolicy", "WindowCalls", "WindowFunctions"]

TIME: Final = "__changelog_state_time"
"""The column with the rows' event time in milliseconds, while they are in the task."""

LatePolicy = Literal["accept", "drop", "side_output", "function"]


@dataclass(frozen=True)
class WindowFunctions:
    function: Callable[..., Any]
    """``function(key, window, rows, state)``: new rows of a window."""
    on_close: Callable[..., Any] | None = None
    """``on_close(key, window, state)``: the window is closed, its state is removed afterwards."""
    on_late: Callable[..., Any] | None = None
    """``on_late(key, window, rows, state)``"""
    emits_updates: bool = True
    late: LatePolicy = "drop"


class WindowCalls:
    def __init__(self, functions: WindowFunctions, kind: WindowKind, task: PartitionTask) -> None:
        self.accepts_late = functions.late == "accept"
        self.has_on_close = functions.on_close is not None
        self.watermark_ms = task.spec.watermark_ms
        self._functions = functions
        self._kind = kind
        self._task = task

    def is_closed(self, window: Window) -> bool:
        return self.has_passed(self._kind.closes_ms(window))

    def has_passed(self, time_ms: int) -> bool:
        return self.watermark_ms is not None and time_ms <= self.watermark_ms

    def update(self, key: Any, window: Window, rows: list[Row], at: WindowState) -> Iterator[Mapping[str, Any]]:
        functions = self._functions
        self._task.context.take_rows(rows)
        produced = rows_of(functions.function(key, window, rows, at.state) or ())
        if functions.emits_updates:
            yield from produced
            return
        for row in produced:
            raise FunctionError(
                f"func gave a row, {row!r}, but emit='close' says that windows give rows when they are closed; "
                "yield it in on_close, or use emit='update'"
            )

    def merge(
        self, function: Callable[..., Any] | None, key: Any, at: WindowState, other: WindowState, rows: list[Row]
    ) -> None:
        """Of two sessions that a row has joined, the second one's state is taken over into the first one's."""
        if function is None:
            raise FunctionError("two sessions became one; say with Session(merge=) how their states are put together")
        self._task.context.take_rows(rows)
        function(key, at.state, other.state)

    def with_state(self, late: Iterable[int]) -> Iterable[int]:
        """Of windows that have late rows, those whose state is needed for them."""
        return late if self._functions.on_late is not None else ()

    def late(self, key: Any, window: Window, rows: list[Row], at: WindowState | None) -> Iterator[Mapping[str, Any]]:
        """Rows that are too late for a window."""
        functions = self._functions
        if functions.late == "side_output":
            bounds = {"start": window.start, "end": window.end}
            yield from ({LATE_COLUMN: {**row, "window": bounds}} for row in rows)
        elif functions.on_late is not None and at is not None:
            self._task.context.take_rows(rows)
            yield from rows_of(functions.on_late(key, window, rows, at.state) or ())

    def count_late(self, rows: int) -> None:
        self._task.counts.late_rows += rows

    def close(self, key: Any, window: Window, at: WindowState) -> Iterable[Mapping[str, Any]]:
        self._task.context.take_rows(())
        if self._functions.on_close is not None:
            self._task.counts.timers += 1
            yield from rows_of(self._functions.on_close(key, window, at.state) or ())
        at.forget()
