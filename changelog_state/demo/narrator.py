"""What a newcomer sees while the demo runs: one line per thing that happens, and how the stream is doing."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape

__all__ = ["Narrator"]

_REFRESH_SECONDS = 0.25
_PLAIN_LINE_SECONDS = 5.0


class Narrator:
    """On a terminal the stream's progress is one line that changes; elsewhere it is a plain line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()
        moving = console.is_terminal and not console.is_dumb_terminal
        self._status = console.status("") if moving else None
        self._last_progress = 0.0

    def __enter__(self) -> Narrator:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def seconds(self, moment: float | None = None) -> float:
        """Since the demo began."""
        return (time.monotonic() if moment is None else moment) - self._begun

    def say(self, text: str, style: str = "") -> None:
        self._console.print(f"{self.seconds():6.1f} s  {escape(text)}", style=style, soft_wrap=True, highlight=False)

    def wants_progress(self) -> bool:
        pause = _PLAIN_LINE_SECONDS if self._status is None else _REFRESH_SECONDS
        return time.monotonic() - self._last_progress >= pause

    def progress(self, text: str) -> None:
        self._last_progress = time.monotonic()
        if self._status is None:
            self.say(f"    {text}")
        else:
            self.doing(text)

    def doing(self, text: str) -> None:
        """For a terminal only: what the moving line says until there is news."""
        if self._status is not None:
            self._status.update(f"{self.seconds():4.0f} s  {escape(text)}")
