"""Ends a task's wait for an agent that has gone without a word.

A connection that is cut off says nothing: gRPC would wait for minutes. So if a wait takes long the agent is asked,
over another connection, whether it is there; if it does not answer, the waiting is ended.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from changelog_state.errors import ChangelogStateError

__all__ = ["Watchdog", "watchdog"]

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS = 0.5


class Watchdog:
    """One thread for all waits of a process, started with the first of them."""

    def __init__(self, is_there: Callable[[str], None], patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._is_there = is_there
        self._patience_seconds = patience_seconds
        self._waits: dict[object, tuple[str, float, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, address: str, end: Callable[[], None]) -> Iterator[None]:
        """``end`` is called, from another thread, if the agent is found to be gone meanwhile."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        wait = object()
        self._waits[wait] = address, time.monotonic(), end
        try:
            yield
        finally:
            self._waits.pop(wait, None)

    def _run(self) -> None:
        while True:
            time.sleep(self._patience_seconds)
            now = time.monotonic()
            waits = [
                (wait, address, end)
                for wait, (address, since, end) in list(self._waits.items())
                if now - since >= self._patience_seconds
            ]
            for address in {address for _, address, _ in waits}:
                try:
                    self._is_there(address)
                except ChangelogStateError as error:
                    logger.warning("agent at %s is gone while a task waits for it: %s", address, error)
                    for wait, waited_for, end in waits:
                        if waited_for == address and wait in self._waits:
                            end()


_watchdogs: dict[int, Watchdog] = {}


def watchdog(is_there: Callable[[str], None]) -> Watchdog:
    """This process's own: threads do not survive the fork by which Spark makes its workers."""
    found = _watchdogs.get(os.getpid())
    if found is None:
        found = _watchdogs[os.getpid()] = Watchdog(is_there)
    return found
