"""Kinds of windows: which stretches of event time a row belongs to, and when they are over. All in milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from changelog_state.durations import Duration, duration_ms, to_datetime
from changelog_state.errors import ConfigurationError

__all__ = ["Hopping", "Session", "Sliding", "Tumbling", "Window", "WindowKind"]


class Window(NamedTuple):
    """A stretch of event time, of one key: its start is in it, its end is not; of ``Sliding`` it is the other way."""

    start_ms: int
    """Since 1970."""
    end_ms: int

    @property
    def start(self) -> datetime:
        return to_datetime(self.start_ms)

    @property
    def end(self) -> datetime:
        return to_datetime(self.end_ms)


@dataclass(frozen=True)
class _Kind:
    grace_ms: int = field(init=False, repr=False)

    def closes_ms(self, window: Window) -> int:
        """From this watermark on the window is closed."""
        return window.end_ms + self.grace_ms

    def _keep(self, **lengths: tuple[Duration, int]) -> None:
        """Each with the least that it may be."""
        for name, (length, least_ms) in lengths.items():
            what = f"{name} of {type(self).__name__}"
            object.__setattr__(self, f"{name}_ms", duration_ms(length, what, at_least_ms=least_ms))


@dataclass(frozen=True)
class Hopping(_Kind):
    """Windows of one size, a new one every so often: a row belongs to each that has its time."""

    size: Duration
    every: Duration
    offset: Duration = 0
    """Windows begin at 1970 in UTC, and this later: ``offset="6 hours"`` lets days begin at six."""
    grace: Duration = 0
    """How much longer than to its end a window stays open, by the watermark."""
    size_ms: int = field(init=False, repr=False)
    every_ms: int = field(init=False, repr=False)
    offset_ms: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._keep(size=(self.size, 1), every=(self.every, 1), offset=(self.offset, 0), grace=(self.grace, 0))
        if self.every_ms > self.size_ms:
            raise ConfigurationError(
                f"windows of {self.size!r} every {self.every!r} leave out the rows in between; give every= that is "
                "at most size="
            )

    def starts(self, time_ms: int) -> range:
        """Of all windows that have this time, in order."""
        last = time_ms - (time_ms - self.offset_ms) % self.every_ms
        earlier = (self.size_ms - 1 - (time_ms - last)) // self.every_ms
        return range(last - earlier * self.every_ms, last + 1, self.every_ms)

    def window(self, start_ms: int) -> Window:
        return Window(start_ms, start_ms + self.size_ms)


@dataclass(frozen=True)
class Tumbling(_Kind):
    """Windows of one size, one after the other: a row belongs to one."""

    size: Duration
    offset: Duration = 0
    """Windows begin at 1970 in UTC, and this later: ``offset="6 hours"`` lets days begin at six."""
    grace: Duration = 0
    """How much longer than to its end a window stays open, by the watermark."""
    size_ms: int = field(init=False, repr=False)
    offset_ms: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._keep(size=(self.size, 1), offset=(self.offset, 0), grace=(self.grace, 0))

    def starts(self, time_ms: int) -> tuple[int]:
        return (time_ms - (time_ms - self.offset_ms) % self.size_ms,)

    def window(self, start_ms: int) -> Window:
        return Window(start_ms, start_ms + self.size_ms)


@dataclass(frozen=True)
class Sliding(_Kind):
    """A window per event, back from its time: (time - size, time]. Events of one millisecond share theirs."""

    size: Duration
    grace: Duration = 0
    """How much longer than to its end a window stays open, by the watermark."""
    size_ms: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._keep(size=(self.size, 1), grace=(self.grace, 0))

    def window(self, start_ms: int) -> Window:
        return Window(start_ms, start_ms + self.size_ms)

    def closes_ms(self, window: Window) -> int:
        # The end is in it, and a row of that time is not late while the watermark is at it.
        return window.end_ms + 1 + self.grace_ms

    def leaves_ms(self, window: Window) -> int:
        """From this watermark on, the events at the window's end are in no window that is open or could come."""
        return window.end_ms + self.size_ms + self.grace_ms


@dataclass(frozen=True)
class Session(_Kind):
    """A window per stretch of activity: it goes on as long as rows are less than ``gap`` apart.

    It ends a gap after its last row. A row may join two sessions that were apart.
    """

    gap: Duration
    merge: Callable[..., Any] | None = None
    """``merge(key, state, other)`` puts into ``state``, of the session that begins earlier, what ``other`` has."""
    grace: Duration = 0
    """How much longer than to its end a window stays open, by the watermark."""
    gap_ms: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._keep(gap=(self.gap, 1), grace=(self.grace, 0))

    def window(self, first_ms: int, last_ms: int) -> Window:
        """Of a session with rows between these times."""
        return Window(first_ms, last_ms + self.gap_ms)


WindowKind: TypeAlias = Tumbling | Hopping | Sliding | Session
