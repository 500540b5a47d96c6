"""Where agents and drivers find each other: a small compacted topic, one record per agent's address."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from confluent_kafka import Message

from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import AvroRecord
from changelog_state.codec.avro import SingleObjectCodec
from changelog_state.config import ClusterConfig
from changelog_state.errors import (
    BrokerUnavailableError,
    ChangelogStateError,
    UnavailableError,
    ValueEncodingError,
)

__all__ = ["OLDEST_SECONDS", "AgentDirectory", "AgentRecord"]

logger = logging.getLogger(__name__)

OLDEST_SECONDS = 600.0
"""Older records are of agents that have ended without a word."""
_ANSWER_SECONDS = 5.0
_AWAY_SECONDS = 5.0


@dataclass(frozen=True)
class AgentRecord(AvroRecord):
    """An agent as it describes itself. Written again every minute, so that an old one is of an agent that is gone."""

    id: str
    incarnation: str
    address: str
    socket: str
    host: str
    rack: str | None
    pid: int
    state_dir: str
    version: str
    draining: bool

    _codec = SingleObjectCodec(
        {
            "type": "record",
            "name": "changelog_state.Agent",
            "fields": [
                {"name": "id", "type": "string"},
                {"name": "incarnation", "type": "string"},
                {"name": "address", "type": "string"},
                {"name": "socket", "type": "string"},
                {"name": "host", "type": "string"},
                {"name": "rack", "type": ["null", "string"]},
                {"name": "pid", "type": "long"},
                {"name": "state_dir", "type": "string"},
                {"name": "version", "type": "string"},
                {"name": "draining", "type": "boolean"},
            ],
        }
    )

    @property
    def advertised(self) -> str:
        """host:port, the record's key."""
        return self.address.partition("://")[2]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Self:
        return cls(**{name: described[name] for name in cls.__dataclass_fields__})

    def describe(self) -> dict[str, Any]:
        return asdict(self)


class AgentDirectory:
    """The agents that are registered. Keeps one consumer open; for any thread."""

    def __init__(self, config: ClusterConfig, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._reader: ChangelogReader | None = None
        self._position: int | None = None
        self._known: dict[bytes, tuple[AgentRecord, float]] = {}
        """By key: the record, and the broker's time of it in seconds."""
        self._looked_at: float | None = None
        """The clock when the broker last answered."""
        self._ask_again_at = 0.0

    def read(self) -> list[AgentRecord]:
        """Those registered now, by address; none if there is no such topic, which is not made by asking.

        While the broker is away, what was known before; ``BrokerUnavailableError`` if nothing was.
        """
        with self._lock:
            # Whoever looks for agents should not wait for a missing broker each time.
            if self._looked_at is None or time.monotonic() >= self._ask_again_at:
                try:
                    self._catch_up()
                    self._looked_at = self._clock()
                except UnavailableError as error:
                    if self._looked_at is None:
                        raise
                    self._ask_again_at = time.monotonic() + _AWAY_SECONDS
                    age = self._clock() - self._looked_at
                    logger.warning("the list of agents is %.0f s old and cannot be renewed: %s", age, error)
            oldest = (self._looked_at or 0.0) - OLDEST_SECONDS
            return [record for _, (record, written) in sorted(self._known.items()) if written >= oldest]

    def close(self) -> None:
        with self._lock:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def _catch_up(self) -> None:
        """
        1. The topic must be there; once it was, the next step tells.
        2. Ask for its end. Mostly nothing is new.
        3. Else read from where we were, or from the beginning if the topic was made anew since.
        """
        if self._reader is None:
            self._reader = ChangelogReader(self._config, self._config.agents_topic, 0)
        if self._position is None and not self._reader.exists(_ANSWER_SECONDS):
            self._known.clear()
            return
        try:
            low, end = self._reader.bounds(_ANSWER_SECONDS)
            if self._position is None or not low <= self._position <= end:
                self._known.clear()
                self._position = low
            if self._position < end:
                self._read(self._reader, self._position, end)
                self._position = end
        except UnavailableError:
            raise
        except ChangelogStateError:
            self._position = None
            if self._reader.exists(_ANSWER_SECONDS):
                raise
            self._known.clear()

    def _read(self, reader: ChangelogReader, start: int, end: int) -> None:
        deadline = time.monotonic() + _ANSWER_SECONDS
        reader.seek(start)
        while reader.position() < end:
            for message in reader.read(1_000):
                self._take(message)
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"topic {self._config.agents_topic} on {self._config.bootstrap_servers} could not be read to its "
                    f"end within {_ANSWER_SECONDS:.0f} s; check the broker"
                )
        # Between two looks the broker would be asked for news a hundred times a second.
        reader.rest()

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        self._known.pop(key, None)
        if value is None:
            return
        try:
            self._known[key] = AgentRecord.decode(value), message.timestamp()[1] / 1000
        except ValueEncodingError as error:
            logger.warning("the registration of agent %s is left out: %s", key.decode(errors="replace"), error)
