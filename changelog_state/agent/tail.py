"""The thread behind a partition that is followed: it catches up, then tails the changelog until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from changelog_state.changelog.topic import Topic
from changelog_state.config import LogSettings
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.state_store import StateStore
from restore.bulk_pool import BulkPool
from restore.catch_up import catch_up
from restore.hot_replica import HotReplica
from restore.replay import ReplayProgress

__all__ = ["Tail"]

_POLL_SECONDS = 0.01


class _StoppedError(Exception):
    """Raised inside the catching up, at its next step, to end it."""


class Tail:
    """``on_open`` gets the store once it is near the end; ``on_error`` what ended the tail, if not ``stop``."""

    def __init__(
        self,
        config: LogSettings,
        topic: Topic,
        partition: int,
        directory: PartitionDirectory,
        pool: BulkPool,
        lock: AbstractContextManager[Any],
        *,
        opened: StateStore | None,
        on_open: Callable[[StateStore], None],
        on_progress: Callable[[ReplayProgress], None],
        on_error: Callable[[Tail, Exception], None],
    ) -> None:
        self._config = config
        self._topic = topic
        self._partition = partition
        self._directory = directory
        self._pool = pool
        self._lock = lock
        self._opened = opened
        self._on_open = on_open
        self._on_progress = on_progress
        self._on_error = on_error
        self._stop = threading.Event()
        self._replica: HotReplica | None = None
        self._thread = threading.Thread(target=self._run, name=f"tail-{partition}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when it has ended. Not under the partition's lock: the tail may be waiting for that."""
        self.stop_soon()
        self._thread.join()

    def stop_soon(self) -> None:
        self._stop.set()

    def reach(self, end: int, timeout_seconds: float) -> bool:
        """Whether it has read up to there, waiting for it if need be."""
        deadline = time.monotonic() + timeout_seconds
        while not self.has(end):
            if time.monotonic() > deadline or not self._thread.is_alive():
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def has(self, end: int) -> bool:
        """Whether it has read up to there by now."""
        replica = self._replica
        return replica is not None and replica.standing.position >= end

    def describe(self) -> dict[str, Any] | None:
        """How near to the end it is; None while it is still catching up."""
        replica = self._replica
        if replica is None:
            return None
        standing = replica.standing
        return {
            "position": standing.position,
            "end": standing.end,
            "lag_records": standing.lag_records,
            "lag_seconds": round(standing.lag_seconds(time.monotonic()), 3),
        }

    def _run(self) -> None:
        try:
            state = catch_up(
                self._config,
                self._topic,
                self._partition,
                self._directory,
                self._opened,
                None,
                self._note,
                pool=self._pool,
            ).state
            self._on_open(state)
            self._replica = HotReplica(self._config, self._topic, self._partition, state)
            self._replica.run(self._stop, self._lock)
        except _StoppedError:
            return
        except Exception as error:
            self._on_error(self, error)

    def _note(self, progress: ReplayProgress) -> None:
        if self._stop.is_set():
            raise _StoppedError
        self._on_progress(progress)
