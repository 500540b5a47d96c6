"""Whether anybody still needs this agent: drivers on this machine are watched, others have to be heard from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Drivers", "process_start"]


class Drivers:
    """Those that said hello. One on this machine may be silent for as long as its process lives."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, start_of: Callable[[int], str] | None = None
    ) -> None:
        self._clock = clock
        self._start_of = start_of or process_start
        self._here: dict[int, str] = {}
        self._last_seen = clock()
        self._lock = threading.Lock()

    def heard(self, pid: int, start: str) -> None:
        """A driver says that it is this process: of this machine only if there is one that began at that time."""
        with self._lock:
            self._last_seen = self._clock()
            if start and self._start_of(pid) == start:
                self._here[pid] = start

    def idle_seconds(self) -> float:
        """Since when nobody is known to be there."""
        with self._lock:
            self._here = {pid: start for pid, start in self._here.items() if self._start_of(pid) == start}
            if self._here:
                self._last_seen = self._clock()
            return self._clock() - self._last_seen


def process_start(pid: int) -> str:
    """Tells a process from a later one with its number, and from one of another machine; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
