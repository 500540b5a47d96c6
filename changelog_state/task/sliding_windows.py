"""Sliding windows: one per event, with what happened in the time before it.

A window's note ("rows") has the events of the moment at its end. They are kept for as long as they may be in a window
that is open or could come, which is longer than their own window is open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from changelog_state.task.grouping import Row
from changelog_state.task.stored_rows import StoredRows
from changelog_state.task.window_functions import TIME, WindowCalls
from changelog_state.task.window_state import CLOSE, KeyWindows, WindowState
from changelog_state.windows import Sliding, Window

__all__ = ["SlidingWindows"]

_LEAVE: Final = "leave"
"""The timer that removes the events."""


class SlidingWindows:
    note_name = "rows"

    def __init__(self, kind: Sliding, calls: WindowCalls, rows: Callable[[], StoredRows]) -> None:
        self._kind = kind
        self._calls = calls
        self._stored_rows = rows

    def load(self, keys: list[KeyWindows], read: Callable[[list[KeyWindows]], None]) -> None:
        read(keys)

    def process(self, its: KeyWindows) -> Iterator[Mapping[str, Any]]:
        """
        1. Put the rows to the moments at which they happened; sort out those whose own window is closed.
        2. Window by window, in order of time: the new rows, or if the window is new, all that are in it.
        3. Late rows; then the windows and the rows whose time has come.
        """
        if its.rows:
            yield from self._process_rows(its)
        for start_ms, at in sorted(its.windows.items()):
            yield from self._close(its, start_ms, at)

    def _process_rows(self, its: KeyWindows) -> Iterator[Mapping[str, Any]]:
        size_ms, calls = self._kind.size_ms, self._calls
        rows = self._stored_rows()
        before = {start_ms + size_ms: at.note or () for start_ms, at in its.windows.items()}
        new: dict[int, list[Row]] = defaultdict(list)
        for row in its.rows:
            new[row.pop(TIME)].append(rows.to_stored(row))
        opened: list[int] = []
        late: dict[int, list[Row]] = {}
        for time_ms, its_rows in sorted(new.items()):
            is_late = calls.is_closed(self._window(time_ms))
            if is_late:
                calls.count_late(len(its_rows))
            if is_late and not calls.accepts_late:
                late[time_ms] = its_rows
            elif time_ms not in before or (is_late and not self._is_pending(its, time_ms)):
                opened.append(time_ms)
            self._keep(its, time_ms, its_rows)
        merged = {time_ms: [*before.get(time_ms, ()), *new.get(time_ms, ())] for time_ms in {*before, *new}}
        of_all, of_new = _Moments(merged), _Moments(new)
        still_open = [
            time_ms
            for time_ms in before
            if not calls.is_closed(self._window(time_ms)) or (calls.accepts_late and self._is_pending(its, time_ms))
        ]
        for time_ms in sorted({*opened, *still_open}):
            found = (of_all if time_ms in opened else of_new).between(time_ms - size_ms, time_ms)
            if found:
                at = its.window(time_ms - size_ms)
                was_empty = at.is_empty
                yield from calls.update(its.key, self._window(time_ms), [rows.to_row(row) for row in found], at)
                if (was_empty and not at.is_empty) or (time_ms in opened and calls.has_on_close):
                    at.timers[CLOSE] = self._kind.closes_ms(self._window(time_ms))
        for time_ms, its_rows in late.items():
            at = its.window(time_ms - size_ms)
            yield from calls.late(its.key, self._window(time_ms), [rows.to_row(row) for row in its_rows], at)
            if not self._is_pending(its, time_ms):
                at.forget()

    def _keep(self, its: KeyWindows, time_ms: int, rows: list[Row]) -> None:
        """The events, for their own window and the later ones."""
        at = its.window(time_ms - self._kind.size_ms)
        leaves_ms = self._kind.leaves_ms(self._window(time_ms))
        if not self._calls.has_passed(leaves_ms):
            if not at.note:
                at.timers[_LEAVE] = leaves_ms
            at.note = [*(at.note or ()), *rows]

    def _close(self, its: KeyWindows, start_ms: int, at: WindowState) -> Iterator[Mapping[str, Any]]:
        window = self._kind.window(start_ms)
        due = its.due.get(start_ms, set())
        if CLOSE in due or at.timers.get(CLOSE) is not None:
            if self._calls.is_closed(window):
                yield from self._calls.close(its.key, window, at)
                at.timers[CLOSE] = None
            else:
                at.timers[CLOSE] = self._kind.closes_ms(window)
        if _LEAVE in due:
            gone = self._calls.has_passed(self._kind.leaves_ms(window))
            at.timers[_LEAVE] = None if gone else self._kind.leaves_ms(window)
            at.note = None if gone else at.note

    def _is_pending(self, its: KeyWindows, time_ms: int) -> bool:
        """Whether the window that ends then is over and has yet to come out: it has all that came before. Its timer
        may not be due, if it was set with a longer grace, or if more timers are than a batch takes."""
        at = its.windows.get(time_ms - self._kind.size_ms)
        return at is not None and (CLOSE in its.due.get(at.number_ms, ()) or bool(at.state._stored))

    def _window(self, time_ms: int) -> Window:
        return self._kind.window(time_ms - self._kind.size_ms)


class _Moments:
    """Rows by their times, to be found by a range of these."""

    def __init__(self, rows: Mapping[int, list[Row]]) -> None:
        self._times = sorted(rows)
        self._rows = rows

    def between(self, after_ms: int, until_ms: int) -> list[Row]:
        """In order of time: of (after, until]."""
        first, last = bisect_right(self._times, after_ms), bisect_right(self._times, until_ms)
        return [row for time_ms in self._times[first:last] for row in self._rows[time_ms]]
