"""Reading state from outside a batch: no epoch, no transactional id, nothing changed."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any

from changelog_state.agent.client import AgentClient
from changelog_state.changelog import clients
from changelog_state.changelog.control import read_control, verify_identity
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import StoreIdentity
from changelog_state.changelog.topic import lookup_topic
from changelog_state.codec.keys import KeyCodec, record_key, split_record_key
from changelog_state.codec.kinds import DATA
from changelog_state.codec.partitioner import partition_of
from changelog_state.config import StoreConfig
from changelog_state.errors import BatchRunningError, ConfigurationError, InvalidKeyError, SourceModeError
from changelog_state.state.ttl import ABSENT, decode_visible
from changelog_state.store.base import next_prefix
from restore.figures import RestoreFigures

__all__ = ["StateReader"]

_PAGE = 1_000


class StateReader:
    def __init__(self, config: StoreConfig, agent: AgentClient | None) -> None:
        self._config = config
        self._agent = agent

    def identity(self) -> StoreIdentity | None:
        """What the store was made as; None if it was never written."""
        if lookup_topic(self._config) is None:
            return None
        epoch = read_control(self._config).epoch
        if epoch is None:
            return None
        identity = StoreIdentity.from_fields(vars(epoch))
        wanted = StoreIdentity.of(self._config, identity.partitioner, identity.key_types)
        verify_identity(self._config, identity, wanted)
        return identity

    def get(self, key: Any, name: str, default: Any) -> Any:
        identity = self.identity()
        if identity is None:
            return default
        codec = KeyCodec(tuple(identity.key_types))
        wanted = record_key(DATA, codec.encode(key), name)
        for partition in self._places(identity, codec, key):
            value = decode_visible(self._reads().read(self._config, partition, [wanted])[0], _now_ms())
            if value is not ABSENT:
                return value
        return default

    def get_all(self, key: Any) -> dict[str, Any]:
        identity = self.identity()
        if identity is None:
            return {}
        codec = KeyCodec(tuple(identity.key_types))
        prefix = DATA + codec.encode(key)
        for partition in self._places(identity, codec, key):
            entries = self._entries(partition, prefix, next_prefix(prefix))
            found = _visible(codec, entries)
            if found:
                return found
        return {}

    def scan(
        self, prefix: Any, start: Any, end: Any, limit: int | None, partitions: Sequence[int] | None = None
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        if prefix is not None and (start is not None or end is not None):
            raise InvalidKeyError("scan takes a prefix, or start and end, not both")
        if limit is not None and limit < 0:
            raise ConfigurationError(f"limit is {limit}; give a number of keys, or None for all")
        identity = self.identity()
        if identity is None:
            return iter(())
        codec = KeyCodec(tuple(identity.key_types))
        if prefix is not None:
            lower = DATA + codec.prefix(prefix)
            upper = next_prefix(lower)
        else:
            lower = DATA if start is None else DATA + codec.bound(start)
            upper = next_prefix(DATA) if end is None else DATA + codec.bound(end)
        chosen = range(self._config.partitions) if partitions is None else partitions
        return islice(self._scan(codec, lower, upper, chosen), limit)

    def _scan(
        self, codec: KeyCodec, lower: bytes, upper: bytes | None, partitions: Sequence[int]
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        streams = [self._entries(partition, lower, upper) for partition in partitions]
        merged = heapq.merge(*streams)
        for key, entries in groupby(merged, key=lambda entry: split_record_key(codec, entry[0])[1]):
            found = _visible(codec, entries)
            if found:
                yield key, found

    def status(self) -> dict[str, Any]:
        described = [] if self._agent is None else [self._agent.hello()]
        held = {} if self._agent is None else {s["partition"]: s for s in self._agent.status(self._config)}
        partitions: list[dict[str, Any]] = []
        for number, end_offset in enumerate(self._end_offsets()):
            status = held.get(number)
            owned = status is not None and status["phase"] in ("ACTIVE", "RESTORING")
            position = status["position"] if status is not None else None
            partitions.append(
                {
                    "partition": number,
                    "owner": described[0]["id"] if owned else None,
                    "phase": status["phase"] if status is not None else "CLOSED",
                    "last_batch": status["last_batch"] if status is not None else None,
                    "position": position,
                    "end_offset": end_offset,
                    "lag_records": _lag(status, position, end_offset),
                    "replicas": [],
                    "restore": _restore(status),
                    "error": status["error"] if status is not None else None,
                }
            )
        return {
            "application": self._config.application,
            "store": self._config.store,
            "partitions": partitions,
            "agents": described,
        }

    def refuse_if_running(self) -> None:
        """A batch of another driver that is alive must not lose its state under its feet."""
        running = [s["batch_open"] for s in self._reads().status(self._config) if s["batch_running"]]
        if running:
            raise BatchRunningError(
                f"batch {running[0]['batch']} of query {running[0]['query']} is running on store "
                f"{self._config.name}; stop the query first"
            )

    @staticmethod
    def check_source_topic(config: StoreConfig, topic: str) -> None:
        """Source mode needs as many state partitions as the topic has."""
        with clients.broker_errors(config, f"describe topic {topic}"):
            found = clients.admin(config).list_topics(topic, timeout=clients.REQUEST_TIMEOUT_SECONDS)
        partitions = len(found.topics[topic].partitions)
        if partitions and partitions != config.partitions:
            raise SourceModeError(
                f"topic {topic} has {partitions} partitions, store {config.name} has {config.partitions}; "
                "with partitioning='source' they must be equal"
            )

    def _places(self, identity: StoreIdentity, codec: KeyCodec, key: Any) -> Iterator[int]:
        """Where the key is. In source mode the topic's producers decide: Java's way first, then anywhere."""
        first = partition_of(identity.partitioner, key, codec, identity.partitions)
        yield first
        if identity.partitioner == "kafka":
            yield from (other for other in range(identity.partitions) if other != first)

    def _entries(self, partition: int, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        while True:
            page = self._reads().scan(self._config, partition, start, end, _PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            start = page[-1][0] + b"\x00"

    def _end_offsets(self) -> list[int | None]:
        if lookup_topic(self._config) is None:
            return [None] * self._config.partitions
        found: list[int | None] = []
        for partition in range(self._config.partitions):
            with ChangelogReader(self._config, self._config.changelog_topic, partition) as reader:
                found.append(reader.bounds()[1])
        return found

    def _reads(self) -> AgentClient:
        assert self._agent is not None
        return self._agent


def _visible(codec: KeyCodec, entries: Any) -> dict[str, Any]:
    now_ms = _now_ms()
    found = {}
    for entry_key, data in entries:
        value = decode_visible(data, now_ms)
        if value is not ABSENT:
            found[split_record_key(codec, entry_key)[2]] = value
    return found


def _lag(status: dict[str, Any] | None, position: int | None, end_offset: int | None) -> int | None:
    """Offsets not yet read. An owner has everything, though transaction markers follow its position."""
    if end_offset is None or position is None:
        return end_offset
    if status is not None and status["phase"] == "ACTIVE":
        return 0
    return max(0, end_offset - position)


def _restore(status: dict[str, Any] | None) -> dict[str, Any] | None:
    """The figures of the latest restore here, which may be over."""
    if status is None or status["restore"] is None:
        return None
    figures = RestoreFigures.of(status["partition"], status["phase"], status["restore"])
    return dict(status["restore"]) | figures.to_json()


def _now_ms() -> int:
    return int(time.time() * 1000)
