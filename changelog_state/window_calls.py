"""What windows are asked for, checked, and made into a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from changelog_state.calls import Lateness, LatePolicy
from changelog_state.durations import Duration, duration_ms
from changelog_state.errors import ConfigurationError, FunctionError
from changelog_state.settings import check_choice
from changelog_state.task.spec import EventTime
from changelog_state.task.window_functions import WindowFunctions
from changelog_state.task.windowed import WindowedProgram
from changelog_state.windows import Hopping, Session, Sliding, Tumbling, WindowKind

__all__ = ["Emit", "check_window", "windowed"]

Emit: TypeAlias = Literal["update", "close"]


def windowed(
    func: Callable[..., Any],
    *,
    window: WindowKind,
    event_time: str,
    watermark_delay: Duration,
    emit: Emit,
    on_close: Callable[..., Any] | None,
    late: LatePolicy,
) -> tuple[WindowedProgram, Lateness]:
    check_window(window)
    check_choice("emit", emit, ("update", "close"))
    if not callable(late):
        check_choice("late", late, ("accept", "drop", "side_output"))
    for name, function in (("func", func), ("on_close", on_close)):
        if not callable(function) and (name == "func" or function is not None):
            raise FunctionError(f"{name} is {function!r}; give a function")
    if emit == "close" and on_close is None:
        raise ConfigurationError(
            "emit='close' has windows give their rows when they are closed; say with on_close= which these are"
        )
    if isinstance(window, Session) and not callable(window.merge):
        raise ConfigurationError(
            "a row may join two sessions; say with Session(merge=) how their states are put together: "
            "merge(key, state, other) takes over into state what other has"
        )
    functions = WindowFunctions(
        func, on_close, late if callable(late) else None, emit == "update", "function" if callable(late) else late
    )
    delay_ms = duration_ms(watermark_delay, "watermark_delay", at_least_ms=0)
    return WindowedProgram(functions, window), Lateness(EventTime(event_time, "judged"), delay_ms)


def check_window(window: Any) -> None:
    if not isinstance(window, (Tumbling, Hopping, Sliding, Session)):
        raise ConfigurationError(f"window is {window!r}; give a Tumbling, Hopping, Sliding or Session")
