"""A partition as a hot replica: followed, no longer followed, replaced."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from changelog_state.agent.holding import Holding
from changelog_state.agent.phases import Phase
from changelog_state.agent.tail import Tail
from changelog_state.changelog.topic import Topic
from changelog_state.store.state_store import StateStore
from restore.replay import ReplayProgress

__all__ = ["FollowedPartition"]

logger = logging.getLogger(__name__)


class FollowedPartition(Holding):
    _tail: Tail | None = None

    @property
    def is_tailing(self) -> bool:
        return self._tail is not None

    def follow(self, topic: Topic) -> None:
        """Tail the changelog from now on, unless this is the owner, or about to be it."""
        with self._if_not_claiming() as free:
            taken = self._tail is not None or self._phase in (Phase.ACTIVE, Phase.RESTORING)
            if free and not taken and not self._retired:
                self._start_tail(topic)

    def _start_tail(self, topic: Topic) -> None:
        with self._lock:
            if self._phase is Phase.FAILED:
                self._move(Phase.CLOSED)
            if self._phase is Phase.CLOSED:
                self._move(Phase.FOLLOWING)
            self._last_error = None
            opened, self._state = self._state, None
            self._tail = Tail(
                self.config,
                topic,
                self.number,
                self._directory,
                self._pool,
                self._lock,
                opened=opened,
                on_open=self._tail_opened,
                on_progress=self._tail_progressed,
                on_error=self._tail_failed,
            )
            self._tail.start()

    def unfollow(self) -> None:
        """Tail it no longer; what is on disk stays."""
        with self._if_not_claiming() as free:
            if free and self._tail is not None:
                self._let_go()

    def release_if_replaced(self, known_claim: int) -> None:
        """The driver knows of a later owner: this one was cut off, and must not go on answering as if it were it."""
        with self._if_not_claiming() as free:
            claimed = self._claimed
            if free and claimed is not None and claimed.claim < known_claim:
                logger.warning(
                    "%s partition %d: claim %d was followed by claim %d of another agent; letting go of it",
                    self.config.name,
                    self.number,
                    claimed.claim,
                    known_claim,
                )
                self._let_go()

    @contextmanager
    def _if_not_claiming(self) -> Iterator[bool]:
        """Whether no claim is under way; none begins meanwhile. What is not done now is asked for again."""
        free = self._claiming.acquire(blocking=False)
        try:
            yield free
        finally:
            if free:
                self._claiming.release()

    def _tail_progressed(self, progress: ReplayProgress) -> None:
        self._progress = progress

    def _tail_opened(self, state: StateStore) -> None:
        with self._lock:
            self._state = state
            self._note_disk_position(state)

    def _tail_failed(self, error: Exception) -> None:
        with self._lock:
            self._tail = None
            self._fail(error)

    def _stop_tail(self) -> None:
        """Before anything else is done with the store. Not under the lock, which the tail needs to end."""
        tail = self._tail
        if tail is not None:
            tail.stop()
            with self._lock:
                self._tail = None

    def _let_go(self) -> None:
        """While no claim is under way."""
        self._stop_tail()
        with self._lock:
            if self._phase in (Phase.ACTIVE, Phase.FOLLOWING):
                self._give_up()
