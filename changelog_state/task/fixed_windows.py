"""Tumbling and hopping windows: a row's time says to which it belongs, whatever else there is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from changelog_state.task.grouping import Row
from changelog_state.task.window_functions import TIME, WindowCalls
from changelog_state.task.window_state import CLOSE, KeyWindows, WindowState
from changelog_state.windows import Hopping, Tumbling

__all__ = ["FixedWindows"]


class _Plan(NamedTuple):
    rows: dict[int, list[Row]]
    late: dict[int, list[Row]]


class FixedWindows:
    note_name = None

    def __init__(self, kind: Tumbling | Hopping, calls: WindowCalls) -> None:
        self._kind = kind
        self._calls = calls

    def load(self, keys: list[KeyWindows], read: Callable[[list[tuple[KeyWindows, list[int]]]], None]) -> None:
        """Sort the rows by windows; read the windows that are concerned."""
        for each in keys:
            each.plan = self._plan(each.rows)
        read([(each, sorted({*each.plan.rows, *each.due, *self._calls.with_state(each.plan.late)})) for each in keys])

    def process(self, its: KeyWindows) -> Iterator[Mapping[str, Any]]:
        """New rows, window by window; late ones; then the windows whose time has come."""
        calls, plan = self._calls, its.plan
        for start_ms, rows in sorted(plan.rows.items()):
            at = its.windows[start_ms]
            yield from calls.update(its.key, self._kind.window(start_ms), rows, at)
            self._set_timer(at)
        # A window has something due also when a value in it has expired, which may be after it has come out.
        coming_out = {start_ms for start_ms, names in its.due.items() if CLOSE in names}
        opened = {start_ms for start_ms, at in its.windows.items() if at.was_stored} | set(plan.rows) | coming_out
        for start_ms, rows in sorted(plan.late.items()):
            yield from calls.late(its.key, self._kind.window(start_ms), rows, its.windows.get(start_ms))
        for start_ms, at in sorted(its.windows.items()):
            yield from self._close(its, start_ms, at, start_ms in opened)

    def _plan(self, rows: list[Row]) -> _Plan:
        starts = self._kind.starts
        by_window: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            first, *others = starts(row.pop(TIME))
            by_window[first].append(row)
            for start_ms in others:
                by_window[start_ms].append(_copied(row))
        late = {each: its for each, its in by_window.items() if self._calls.is_closed(self._kind.window(each))}
        self._calls.count_late(sum(map(len, late.values())))
        if self._calls.accepts_late:
            late = {}
        return _Plan({each: its for each, its in by_window.items() if each not in late} if late else by_window, late)

    def _set_timer(self, at: WindowState) -> None:
        """A window that had state before has its timer."""
        if not at.was_stored and (self._calls.has_on_close or not at.is_empty):
            at.timers[CLOSE] = self._kind.closes_ms(self._kind.window(at.number_ms))

    def _close(self, its: KeyWindows, start_ms: int, at: WindowState, was_open: bool) -> Iterator[Mapping[str, Any]]:
        window = self._kind.window(start_ms)
        if self._calls.is_closed(window):
            if was_open:
                yield from self._calls.close(its.key, window, at)
                at.timers[CLOSE] = None
            else:
                at.forget()
        elif CLOSE in its.due.get(start_ms, ()):  # a longer grace than when the timer was set
            at.timers[CLOSE] = self._kind.closes_ms(window)


def _copied(row: Row) -> Row:
    """Functions may change their rows, so each window has its own."""
    return {name: deepcopy(value) if isinstance(value, (list, dict)) else value for name, value in row.items()}
