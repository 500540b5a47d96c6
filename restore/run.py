"""Restoring partitions into a state directory that no agent is using: no epoch, no transactional id."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from changelog_state.changelog.topic import Topic
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogStateError
from changelog_state.store.directory import StateDirectory
from restore.bulk_pool import BulkPool
from restore.catch_up import catch_up
from restore.progress import RestoreFigures
from restore.replay import ReplayProgress

__all__ = ["LocalRestore", "Outcome"]

_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Outcome:
    partition: int
    result: str
    """``done``, ``failed``, ``interrupted``, or ``not begun`` when it was interrupted."""
    figures: RestoreFigures | None
    position: int | None = None
    """Up to where the store is, on disk."""
    error: ChangelogStateError | None = None


class _StoppedError(Exception):
    """Raised inside a replay, at its next chunk, to end it."""


class LocalRestore:
    """One run. Ctrl-C ends it at the next chunks; what is written by then is gone on from by the next run."""

    def __init__(
        self, config: StoreConfig, topic: Topic, directory: StateDirectory, pool: BulkPool, *, from_scratch: bool
    ) -> None:
        self._config = config
        self._pool = pool
        self._topic = topic
        self._directory = directory
        self._from_scratch = from_scratch
        self._stopping = threading.Event()
        self._figures: dict[int, RestoreFigures] = {}

    def run(
        self,
        partitions: Iterable[int],
        parallelism: int,
        show: Callable[[Iterable[RestoreFigures], int], None],
    ) -> list[Outcome]:
        """Restore them, so many at once; ``show`` gets the figures and how many have not begun."""
        with ThreadPoolExecutor(parallelism, thread_name_prefix="restore") as pool:
            futures = {partition: pool.submit(self._restore, partition) for partition in partitions}
            try:
                self._watch(futures.values(), show)
            except KeyboardInterrupt:
                self._stopping.set()
                wait(futures.values())
        return [future.result() for future in futures.values()]

    def _watch(
        self, futures: Iterable[Future[Outcome]], show: Callable[[Iterable[RestoreFigures], int], None]
    ) -> None:
        unfinished = set(futures)
        total = len(unfinished)
        while unfinished:
            _, unfinished = wait(unfinished, _LOOK_SECONDS)
            figures = list(self._figures.values())
            show(figures, total - len(figures))

    def _restore(self, partition: int) -> Outcome:
        def note(progress: ReplayProgress) -> None:
            self._figures[partition] = RestoreFigures.of(partition, "RESTORING", progress)
            if self._stopping.is_set():
                raise _StoppedError

        if self._stopping.is_set():
            return Outcome(partition, "not begun", None)
        directory = self._directory.partition(self._config.application, self._config.store, partition)
        try:
            if self._from_scratch:
                directory.wipe()
            done = catch_up(self._config, self._topic, partition, directory, None, None, note, pool=self._pool)
            done.state.store.close()
        except _StoppedError:
            return Outcome(partition, "interrupted", self._figures[partition])
        except ChangelogStateError as error:
            return Outcome(partition, "failed", self._figures.get(partition), error=error)
        position = done.state.meta.position if done.state.meta is not None else None
        return Outcome(partition, "done", RestoreFigures.of(partition, "RESTORED", done.done), position)
