"""A hot replica: the replay of a restore, only without an end, one whole transaction at a time."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.topic import Topic
from changelog_state.codec.kinds import CLAIM, MARKER
from changelog_state.config import LogSettings
from changelog_state.errors import BrokerUnavailableError, StoreError
from changelog_state.faults import fault_point
from changelog_state.store.state_store import StateStore
from restore.replay import apply_transaction, replay

__all__ = ["HotReplica", "Standing", "whole_transactions"]

logger = logging.getLogger(__name__)

_WAIT_SECONDS = 0.2
"""Also how long a promotion may have to wait for the tail to end."""
_IDLE_FETCH_MS = 500
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
_VOUCH_SECONDS = 30.0
_MOST_RECORDS = 5_000
_MOST_PENDING_BYTES = 64 * 1024 * 1024
_MESSAGE_BYTES = 300


@dataclass(frozen=True)
class Standing:
    """How near to the end a replica is."""

    position: int
    end: int
    """As of the last look at it."""
    caught_up: float
    """When it last had everything, by the monotonic clock."""

    @property
    def lag_records(self) -> int:
        return max(0, self.end - self.position)

    def lag_seconds(self, now: float) -> float:
        """Zero while nothing is missing that is known of; it grows when the end cannot be looked at."""
        unknown = now - self.caught_up > _LOOK_SECONDS + _ANSWER_SECONDS + _WAIT_SECONDS
        return max(0.0, now - self.caught_up) if self.lag_records or unknown else 0.0


class HotReplica:
    """Tails one partition into an open store that has been brought near the end."""

    def __init__(self, config: LogSettings, topic: Topic, partition: int, state: StateStore) -> None:
        self._config = config
        self._topic = topic
        self._partition = partition
        self._state = state
        assert state.meta is not None
        # The end that the store was brought up to was read when that began.
        self._caught_up = time.monotonic() - max(0.0, time.time() - state.meta.caught_up_ms / 1000)
        self._vouched = time.monotonic()
        self._look: tuple[float, int] = (self._caught_up, state.meta.position)
        self._position = state.meta.position

    @property
    def standing(self) -> Standing:
        return Standing(self._position, max(self._look[1], self._position), self._caught_up)

    def run(self, stop: threading.Event, lock: AbstractContextManager[Any]) -> None:
        """Until stopped. Writes under the lock, so that whoever reads under it sees whole transactions.

        1. Wait for records; put those together that belong to one transaction; apply each in one go.
        2. A transaction too large to be held is left to the replay, which needs no more memory for it.
        3. Now and then look where the end is: reached means caught up, as of the moment of the look.
        """
        pending: list[Message] = []
        held_bytes = 0
        with ChangelogReader(
            self._config, self._config.changelog_topic, self._partition, wait_ms=_IDLE_FETCH_MS
        ) as reader:
            reader.seek(self._position)
            while not stop.is_set():
                new = reader.await_records(_MOST_RECORDS, _WAIT_SECONDS)
                if new:
                    self._refuse_if_too_late()
                    transactions, pending = self._whole(pending, new)
                    held_bytes = _held_bytes(pending) if transactions else held_bytes + _held_bytes(new)
                    for transaction in transactions:
                        with lock:
                            apply_transaction(self._config, self._state, transaction)
                        self._position = transaction[-1].offset() + 1
                        fault_point("replica.between_transactions")
                        if stop.is_set():
                            return
                    if held_bytes > _MOST_PENDING_BYTES:
                        with lock:
                            self._replay(reader.bounds()[1])
                        pending, held_bytes = [], 0
                        reader.seek(self._position)
                if not pending:
                    self._position = max(self._position, reader.position())
                self._note_end(reader, lock)

    def _whole(self, pending: list[Message], new: list[Message]) -> tuple[list[list[Message]], list[Message]]:
        """Where transactions have no marks that can be seen, whatever has come together."""
        return ([new], []) if self._config.raw_keys else whole_transactions(pending, new)

    def _replay(self, end: int) -> None:
        assert self._state.meta is not None
        replay(
            self._config,
            self._partition,
            self._state,
            topic_id=self._topic.topic_id,
            start=self._state.meta.position,
            end=end,
            caught_up_ms=int(time.time() * 1000),
        )
        self._position = end

    def _note_end(self, reader: ChangelogReader, lock: AbstractContextManager[Any]) -> None:
        looked, end = self._look
        if self._position >= end:
            self._caught_up = looked
        now = time.monotonic()
        if now - looked < _LOOK_SECONDS:
            return
        try:
            self._look = now, reader.bounds(_ANSWER_SECONDS)[1]
        except BrokerUnavailableError as error:
            logger.info("%s partition %d: %s", self._config.name, self._partition, error)
            return  # the client goes on trying, and the lag shows
        if self._position >= self._look[1]:
            self._caught_up = now
        if now - self._vouched > _VOUCH_SECONDS and now - self._caught_up < _VOUCH_SECONDS:
            # So that a process which is started on this store later knows how long it may have missed deletions.
            with lock:
                self._state.update_meta(caught_up_ms=int((time.time() - (now - self._caught_up)) * 1000))
            self._vouched = now

    def _refuse_if_too_late(self) -> None:
        behind_ms = (time.monotonic() - self._caught_up) * 1000
        if behind_ms > self._topic.delete_retention_ms / 2:
            raise StoreError(
                f"{self._config.name} partition {self._partition}: the replica had not reached the end of the "
                f"changelog for {behind_ms / 1000:.0f} s and may have missed deletions, which stay readable for "
                f"delete.retention.ms={self._topic.delete_retention_ms}; it is looked at afresh"
            )


def whole_transactions(pending: list[Message], new: list[Message]) -> tuple[list[list[Message]], list[Message]]:
    """Complete transactions, and the records of one whose end has not arrived. Each ends with a marker or a claim.

    ``pending``: what was left the last time, in which there is no end.
    """
    complete = []
    begin = 0
    for number, message in enumerate(new, 1):
        if message.key() in _ENDINGS:
            complete.append(pending + new[begin:number])
            pending, begin = [], number
    return complete, pending + new[begin:]


def _held_bytes(messages: list[Message]) -> int:
    """What holding them takes: a record without a value, a deletion, is not nothing."""
    return sum(map(len, messages)) + sum(map(len, map(Message.key, messages))) + _MESSAGE_BYTES * len(messages)


_ENDINGS = frozenset((MARKER, CLAIM))
