"""What an agent has of one partition: its lock, its phase, its open store; and how that is closed or given up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from changelog_state.agent.batch_desk import BatchDesk
from changelog_state.agent.claiming import Claimed
from changelog_state.agent.phases import Phase, check_move
from changelog_state.agent.staging import StagingBudget
from changelog_state.changelog.record import Marker
from changelog_state.config import StoreConfig
from changelog_state.errors import CorruptStoreError, StaleEpochError, StoreError
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.state_store import StateStore
from restore.bulk_pool import BulkPool
from restore.replay import ReplayProgress

__all__ = ["Holding"]

logger = logging.getLogger(__name__)


class Holding:
    """NOTE: two locks. ``_lock`` is held for every look at and change of what is here; ``_claiming`` for the whole of
    a claim, which may take minutes, so that nothing else begins or ends a role of the partition meanwhile."""

    def __init__(
        self,
        config: StoreConfig,
        number: int,
        directory: PartitionDirectory,
        budget: StagingBudget,
        pool: BulkPool,
    ) -> None:
        self.config = config
        self.number = number
        self._directory = directory
        self._pool = pool
        self._lock = threading.RLock()
        self._claiming = threading.Lock()
        self._retired = False
        self._phase = Phase.CLOSED
        self._epoch = 0
        self._claimed: Claimed | None = None
        self._state: StateStore | None = None
        self._marker: Marker | None = None
        self._desk = BatchDesk(budget)
        self._progress: ReplayProgress | None = None
        self._last_error: dict[str, str] | None = None
        self._dirty_since: float | None = None
        self._disk_position = directory.noted_position()

    def refuse_if_older(self, epoch: int) -> None:
        if epoch < self._epoch:
            raise StaleEpochError(
                f"store {self.config.name} partition {self.number}: a driver with epoch {self._epoch} has "
                f"taken over from epoch {epoch}; the older driver must stop"
            )

    def _move(self, phase: Phase) -> None:
        self._phase = check_move(self._phase, phase)

    def _fail(self, error: Exception) -> None:
        """Close after something went wrong; the reason stays visible until the next claim."""
        self._last_error = {"class": type(error).__name__, "message": str(error)}
        logger.error("%s partition %d failed: %s: %s", self.config.name, self.number, *self._last_error.values())
        try:
            self._close_store()
        except StoreError as close_error:
            logger.error("%s partition %d: closing failed too: %s", self.config.name, self.number, close_error)
        self._move(Phase.FAILED)
        if isinstance(error, CorruptStoreError) and self._directory.exists():
            moved = self._directory.move_aside("corrupt")
            self._disk_position = None
            logger.error("%s partition %d: moved to %s", self.config.name, self.number, moved)

    def _close_store(self) -> None:
        self._desk.clear()
        state, self._state = self._state, None
        self._claimed = None
        self._marker = None
        self._dirty_since = None
        if state is not None:
            self._note_disk_position(state)
            state.store.close()

    def _give_up(self) -> None:
        """CLOSED, also if closing fails: what was not flushed is in the changelog."""
        try:
            self._close_store()
        except StoreError as error:
            logger.error("%s partition %d: %s", self.config.name, self.number, error)
        self._move(Phase.CLOSED)

    def _note_disk_position(self, state: StateStore) -> None:
        if state.meta is not None:
            self._disk_position = state.meta.position
            self._directory.note_position(state.meta.position)

    @contextmanager
    def _failing_with_its_store(self) -> Iterator[None]:
        """A store that cannot be read is closed, so that the next claim mends it."""
        try:
            yield
        except StoreError as error:
            if self._phase is not Phase.FAILED:
                self._fail(error)
            raise
