"""An agent's record in the agents' topic: written when it starts, renewed while it runs, taken out when it stops."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from changelog_state.changelog import clients
from changelog_state.changelog.agents import AgentDirectory, AgentRecord
from changelog_state.changelog.topic import ensure_agents_topic
from changelog_state.config import ClusterConfig
from changelog_state.errors import ChangelogStateError

__all__ = ["RENEW_SECONDS", "Registration"]

logger = logging.getLogger(__name__)

RENEW_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 5.0


class Registration:
    """An agent's record, from its announcement to its withdrawal."""

    def __init__(self, config: ClusterConfig, key: str, describe: Callable[[], dict[str, Any]]) -> None:
        self._config = config
        self._key = key.encode()
        self._describe = describe
        self._producer: Producer = clients.producer(config)
        self._queueing = threading.Lock()
        self._stopping = threading.Event()
        self._announced: AgentRecord | None = None
        self._renew_at = 0.0
        self._thread = threading.Thread(target=self._keep, name="registration", daemon=True)

    def announce(self, predecessor: str | None = None) -> None:
        """Make the topic if there is none; write the record, and from now on again and again.

        ``predecessor``: the id of an agent that has ended without a word; its record is taken out.
        """
        ensure_agents_topic(self._config)
        if predecessor is not None:
            self._take_out(predecessor)
        self._write_record()
        self._thread.start()

    def withdraw(self) -> None:
        """Take the record out. Without a broker it stays: readers leave it out when it is old."""
        with self._queueing:
            self._stopping.set()
        if self._announced is None:
            return
        try:
            self._write(self._key, None)
        except ChangelogStateError as error:
            logger.warning("the registration of %s stays for a while: %s", self._key.decode(), error)

    def _take_out(self, predecessor: str) -> None:
        with closing(AgentDirectory(self._config)) as directory:
            left = [record for record in directory.read() if record.id == predecessor]
        for record in left:
            if record.advertised.encode() != self._key:
                self._write(record.advertised.encode(), None)
                logger.info("took out the registration of %s, which has ended", record.advertised)

    def _keep(self) -> None:
        """A broker that is away must not end the agent, which may be able to do without for a while."""
        failing = False
        while not self._stopping.wait(_RETRY_SECONDS if failing else _LOOK_SECONDS):
            if time.monotonic() < self._renew_at and AgentRecord.of(self._describe()) == self._announced:
                continue
            try:
                if failing:
                    ensure_agents_topic(self._config)
                self._write_record()
                if failing:
                    logger.info("registered again as %s", self._key.decode())
                failing = False
            except ChangelogStateError as error:
                level = logging.INFO if failing else logging.WARNING
                logger.log(level, "the registration could not be renewed, trying again: %s", error)
                failing = True

    def _write_record(self) -> None:
        record = AgentRecord.of(self._describe())
        self._write(self._key, record.encode())
        self._announced = record
        self._renew_at = time.monotonic() + RENEW_SECONDS

    def _write(self, key: bytes, value: bytes | None) -> None:
        outcome: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            outcome.append(error)

        with clients.broker_errors(self._config, f"write to {self._config.agents_topic}"):
            with self._queueing:
                if value is not None and self._stopping.is_set():
                    return  # nothing may follow the withdrawal
                self._producer.produce(self._config.agents_topic, key=key, value=value, on_delivery=delivered)
            self._producer.flush(2 * clients.ANNOUNCE_TIMEOUT_SECONDS)
            error = outcome[0] if outcome else KafkaError(KafkaError._TIMED_OUT)
            if error is not None:
                raise KafkaException(error)
