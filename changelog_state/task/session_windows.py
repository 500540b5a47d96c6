"""Sessions: a row's window depends on the rows around it, and grows with them.

A session's number in the key is the time of the row that began it, and stays when the session grows to the left; its
note ("window") has the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from changelog_state.task.grouping import Row
from changelog_state.task.stretches import Stretch, together
from changelog_state.task.window_functions import TIME, WindowCalls
from changelog_state.task.window_state import CLOSE, KeyWindows, WindowState
from changelog_state.windows import Session, Window

__all__ = ["SessionWindows"]


_Stretch: TypeAlias = Stretch[WindowState, Row]


class SessionWindows:
    note_name = "window"

    def __init__(self, kind: Session, calls: WindowCalls) -> None:
        self._kind = kind
        self._calls = calls

    def load(self, keys: list[KeyWindows], read: Callable[[list[KeyWindows]], None]) -> None:
        read(keys)

    def process(self, its: KeyWindows) -> Iterator[Mapping[str, Any]]:
        """
        1. Put the rows to the sessions that are open, which may merge them; begin new ones.
        2. New rows, session by session; late ones, whose session would be closed already.
        3. Close the sessions whose time has come.
        """
        late: list[_Stretch] = []
        for stretch in self._stretches(its):
            if not stretch.rows:
                continue
            is_late = not stretch.sessions and self._calls.is_closed(self._window(stretch))
            if is_late:
                self._calls.count_late(len(stretch.rows))
            if is_late and not self._calls.accepts_late:
                late.append(stretch)
            else:
                yield from self._go_on(its, stretch)
        for stretch in late:
            at = its.new_window(self._free_number(its, stretch.first_ms), keep=False)
            yield from self._calls.late(its.key, self._window(stretch), stretch.rows, at)
        for _, at in sorted(its.windows.items()):
            if at.note is not None:
                yield from self._close(its, at)
            elif at.number_ms in its.due:
                at.timers[CLOSE] = None

    def _stretches(self, its: KeyWindows) -> list[_Stretch]:
        """In order of time. Sessions whose time has come take no rows any more, unless all rows are accepted."""
        parts = [
            _Stretch(at.note["start"], at.note["end"] - self._kind.gap_ms, [at])
            for at in its.windows.values()
            if at.note is not None and (self._calls.accepts_late or not self._calls.is_closed(_bounds(at)))
        ]
        for row in its.rows:
            time_ms = row.pop(TIME)
            parts.append(_Stretch(time_ms, time_ms, rows=[row]))
        return together(parts, self._kind.gap_ms)

    def _go_on(self, its: KeyWindows, stretch: _Stretch) -> Iterator[Mapping[str, Any]]:
        window = self._window(stretch)
        if stretch.sessions:
            at, *others = stretch.sessions
            for other in others:
                self._merge(its, at, other, stretch.rows)
        else:
            at = its.new_window(self._free_number(its, stretch.first_ms))
        if at.note is None or at.note["end"] != window.end_ms:
            at.timers[CLOSE] = self._kind.closes_ms(window)
        at.note = {"start": window.start_ms, "end": window.end_ms}
        yield from self._calls.update(its.key, window, stretch.rows, at)

    def _merge(self, its: KeyWindows, at: WindowState, other: WindowState, rows: list[Row]) -> None:
        self._calls.merge(self._kind.merge, its.key, at, other, rows)
        other.forget()
        other.note = None
        other.timers[CLOSE] = None

    def _close(self, its: KeyWindows, at: WindowState) -> Iterator[Mapping[str, Any]]:
        window = _bounds(at)
        if self._calls.is_closed(window):
            yield from self._calls.close(its.key, window, at)
            at.note = None
            at.timers[CLOSE] = None
        elif its.due.get(at.number_ms):  # a longer grace than when the timer was set
            at.timers[CLOSE] = self._kind.closes_ms(window)

    def _window(self, stretch: _Stretch) -> Window:
        return self._kind.window(stretch.first_ms, stretch.last_ms)

    @staticmethod
    def _free_number(its: KeyWindows, first_ms: int) -> int:
        """One that is about to be closed may have begun at the same time."""
        while first_ms in its.windows:
            first_ms += 1
        return first_ms


def _bounds(at: WindowState) -> Window:
    return Window(at.note["start"], at.note["end"])
