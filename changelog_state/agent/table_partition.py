"""One partition of a global table: followed for as long as the table is, started again when that fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from changelog_state.agent.tail import Tail
from changelog_state.changelog.topic import Topic
from changelog_state.config import TableConfig
from changelog_state.errors import AgentUnavailableError, CorruptStoreError, StoreError
from changelog_state.faults import fault_point
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.state_store import StateStore
from restore.bulk_pool import BulkPool
from restore.replay import ReplayProgress

__all__ = ["TablePartition"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
_PAUSE_SECONDS = 2.0
_FLUSH_AFTER_SECONDS = 600.0


class TablePartition:
    """``keep``, ``stop_soon`` and ``stop`` are for one thread, the keeper of all tables; anything else for any.

    ``wake``: called when the keeper has something to do.
    """

    def __init__(
        self,
        config: TableConfig,
        topic: Topic,
        number: int,
        directory: PartitionDirectory,
        pool: BulkPool,
        wake: Callable[[], None],
    ) -> None:
        self._config = config
        self._topic = topic
        self._number = number
        self._directory = directory
        self._pool = pool
        self._wake = wake
        self._lock = threading.Lock()
        self._tail: Tail | None = None
        self._state: StateStore | None = None
        self._progress: ReplayProgress | None = None
        self._failure: Exception | None = None
        self._retry_at = 0.0
        self._flushed = 0.0, 0
        self.last_error: Exception | None = None
        """Until it is open again."""

    # -- for the keeper ----------------------------------------------------------------------------------

    def keep(self, now: float) -> None:
        """Start what is not running; after a failure only when the pause is over. Flush now and then."""
        if self._failure is not None:
            self._clean_up(self._failure)
            self._failure, self._retry_at = None, now + _PAUSE_SECONDS
        if self._tail is None and now >= self._retry_at:
            self._start(now)
        elif now - self._flushed[0] > _FLUSH_AFTER_SECONDS:
            self._flush(now)

    def stop_soon(self) -> None:
        """So that several end together."""
        if self._tail is not None:
            self._tail.stop_soon()

    def stop(self) -> None:
        """What is on disk stays."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.stop()
        with self._lock:
            state, self._state = self._state, None
        if state is not None:
            try:
                state.store.close()
            except StoreError as error:
                logger.error("%s partition %d: %s", self._config.name, self._number, error)

    def _start(self, now: float) -> None:
        self._flushed = now, 0
        self._tail = Tail(
            self._config,
            self._topic,
            self._number,
            self._directory,
            self._pool,
            self._lock,
            opened=None,
            on_open=self._opened,
            on_progress=self._progressed,
            on_error=self._tail_failed,
        )
        self._tail.start()

    def _clean_up(self, error: Exception) -> None:
        self.stop()
        if isinstance(error, CorruptStoreError) and self._directory.exists():
            moved = self._directory.move_aside("corrupt")
            logger.error("%s partition %d: moved to %s, rebuilding", self._config.name, self._number, moved)

    def _flush(self, now: float) -> None:
        """Without it a killed agent would read again whatever came since it was started."""
        with self._lock:
            state = self._state
            if state is None or state.meta is None:
                return
            if state.meta.position != self._flushed[1]:
                try:
                    state.store.flush()
                except StoreError as error:
                    self._failed(error)
                    return
            self._flushed = now, state.meta.position

    # -- for the tail's thread ---------------------------------------------------------------------------

    def _progressed(self, progress: ReplayProgress) -> None:
        self._progress = progress
        fault_point("table.replaying")

    def _opened(self, state: StateStore) -> None:
        with self._lock:
            self._state = state
        self.last_error = None
        if self._progress is not None and self._progress.records:
            state.store.flush()

    def _tail_failed(self, tail: Tail, error: Exception) -> None:
        if tail is self._tail:  # else it was stopped meanwhile
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        logger.error("%s partition %d failed: %s: %s", self._config.name, self._number, type(error).__name__, error)
        self._failure = self.last_error = error
        self._wake()

    # -- for everyone ------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._state is not None

    def has(self, end: int) -> bool:
        tail = self._tail
        return self.is_open and self._failure is None and tail is not None and tail.has(end)

    def read(self, read: Callable[[StateStore], T]) -> T:
        """Under the lock, so that whole transactions are seen, and the store is not closed meanwhile."""
        with self._lock:
            if self._state is None:
                raise AgentUnavailableError(
                    f"{self._config.name} partition {self._number} is not ready at this agent"
                    + (f": {self.last_error}" if self.last_error else "; it is being read from its topic")
                )
            try:
                return read(self._state)
            except StoreError as error:
                self._failed(error)
                raise

    def lag(self) -> dict[str, Any]:
        """Records and seconds; None for what is not known while it is still catching up."""
        tail, progress = self._tail, self._progress
        followed = tail.describe() if tail is not None else None
        if followed is not None:
            return {name: followed[name] for name in ("lag_records", "lag_seconds")}
        return {"lag_records": None if progress is None else progress.end - progress.position, "lag_seconds": None}
