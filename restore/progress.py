"""A restore that people can watch: bars on a terminal, a line every few seconds elsewhere, nothing if it is short.

No threads: whatever is shown is written by ``update``.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Protocol, Self, TextIO

from restore.figures import RestoreFigures, RestoreTotal
from restore.wording import closing_line, progress_line

__all__ = ["RestoreDisplay", "RestoreFigures"]

logger = logging.getLogger(__name__)

_LINE_SECONDS = 5.0


class _Face(Protocol):
    def show(self, total: RestoreTotal, waiting: int) -> None: ...

    def close(self, last_line: str) -> None: ...


class RestoreDisplay:
    """Shows what ``update`` is given, from ``quiet_seconds`` after the beginning on, and a closing line."""

    def __init__(
        self,
        title: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        quiet_seconds: float = 2.0,
    ) -> None:
        self._title = title
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._quiet_seconds = quiet_seconds
        self._begun = clock()
        self._figures: dict[int, RestoreFigures] = {}
        self._waiting = 0
        self._face: _Face | None = None
        self._broken = False

    def __enter__(self) -> Self:
        self._begun = self._clock()
        return self

    def update(self, figures: Iterable[RestoreFigures], waiting: int = 0) -> None:
        """The latest figures of any partitions, and how many others have not begun."""
        self._figures |= {each.partition: each for each in figures}
        self._waiting = waiting
        if self._face is None and self._clock() - self._begun >= self._quiet_seconds:
            self._write(self._open)
        if self._face is not None:
            self._write(self._show)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._face is None:
            return
        self._write(self._show)
        self._write(self._close)

    # -- inside ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._stream.isatty():
            from restore.bars import Bars  # rich is slow to import, and most restores show nothing

            self._face = Bars(self._title, self._stream)
        else:
            self._face = _Lines(self._title, self._stream, self._clock)

    def _show(self) -> None:
        assert self._face is not None
        self._face.show(self._total(), self._waiting)

    def _close(self) -> None:
        face, self._face = self._face, None
        assert face is not None
        face.close(closing_line(self._title, self._total(), self._waiting))

    def _total(self) -> RestoreTotal:
        by_partition = [self._figures[partition] for partition in sorted(self._figures)]
        return RestoreTotal(by_partition, self._clock() - self._begun)

    def _write(self, step: Callable[[], None]) -> None:
        """A terminal that went away, or cannot show a character, is no reason to fail a batch."""
        if self._broken:
            return
        try:
            step()
        except (OSError, ValueError) as error:
            self._broken = True
            logger.warning("progress is not shown any more: %s", error)


class _Lines:
    """One line for all partitions every few seconds."""

    def __init__(self, title: str, stream: TextIO, clock: Callable[[], float]) -> None:
        self._title = title
        self._stream = stream
        self._clock = clock
        self._next = clock()

    def show(self, total: RestoreTotal, waiting: int) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + _LINE_SECONDS
            self._print(progress_line(self._title, total, waiting))

    def close(self, last_line: str) -> None:
        self._print(last_line)

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
