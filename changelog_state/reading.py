"""Reading state from outside a batch: no epoch, no transactional id, nothing changed."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from changelog_state.agent.client import AgentClient
from changelog_state.changelog import clients
from changelog_state.changelog.control import read_control, verify_identity
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import StoreIdentity
from changelog_state.changelog.topic import lookup_topic
from changelog_state.cluster_status import partition_status, table_statuses
from changelog_state.codec.keys import KeyCodec, record_key, split_record_key
from changelog_state.codec.kinds import DATA
from changelog_state.codec.partitioner import partition_of
from changelog_state.config import StoreConfig, TableConfig
from changelog_state.errors import BatchRunningError, ConfigurationError, InvalidKeyError, SourceModeError
from changelog_state.routes import Routes
from changelog_state.state.ttl import ABSENT, decode_visible
from changelog_state.store.base import next_prefix
from restore.replica_lag import LagLimits

__all__ = ["Reading", "StateReader", "recorded_identity"]

_PAGE = 1_000


@dataclass(frozen=True)
class Reading:
    """A value, and how far behind the log the agent was that gave it."""

    value: Any
    replica: bool
    """Whether a replica has answered, and not the owner."""
    lag_records: int
    lag_seconds: float


def recorded_identity(config: StoreConfig) -> StoreIdentity | None:
    """What the store was made as; None if it was never written."""
    if lookup_topic(config) is None:
        return None
    epoch = read_control(config).epoch
    if epoch is None:
        return None
    identity = StoreIdentity.from_fields(vars(epoch))
    wanted = StoreIdentity.of(config, identity.partitioner, identity.key_types)
    verify_identity(config, identity, wanted)
    return identity


class StateReader:
    def __init__(self, config: StoreConfig, routes: Routes) -> None:
        self._config = config
        self._routes = routes

    def identity(self) -> StoreIdentity | None:
        return recorded_identity(self._config)

    def read(self, key: Any, name: str, default: Any, *, stale_ok: bool) -> Reading:
        identity = self.identity()
        lag: dict[str, Any] = {"lag_records": 0, "lag_seconds": 0.0}
        replica, value = False, ABSENT
        if identity is not None:
            codec = KeyCodec(tuple(identity.key_types))
            wanted = record_key(DATA, codec.encode(key), name)
            for partition in self._places(identity, codec, key):
                [found], lag = self._routes.ask(
                    partition,
                    lambda agent, partition=partition: agent.read_with_lag(  # type: ignore[misc]
                        self._config, partition, [wanted], stale_ok=stale_ok
                    ),
                    stale_ok=stale_ok,
                )
                replica = lag["phase"] != "ACTIVE"
                value = decode_visible(found, _now_ms())
                if value is not ABSENT:
                    break
        return Reading(default if value is ABSENT else value, replica, lag["lag_records"], lag["lag_seconds"])

    def get_all(self, key: Any, *, stale_ok: bool = False) -> dict[str, Any]:
        identity = self.identity()
        if identity is None:
            return {}
        codec = KeyCodec(tuple(identity.key_types))
        prefix = DATA + codec.encode(key)
        for partition in self._places(identity, codec, key):
            entries = self._entries(partition, prefix, next_prefix(prefix), stale_ok)
            found = _visible(codec, entries)
            if found:
                return found
        return {}

    def scan(
        self,
        prefix: Any,
        start: Any,
        end: Any,
        limit: int | None,
        partitions: Sequence[int] | None = None,
        *,
        stale_ok: bool = False,
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
        return islice(self._scan(codec, lower, upper, chosen, stale_ok), limit)

    def _scan(
        self, codec: KeyCodec, lower: bytes, upper: bytes | None, partitions: Sequence[int], stale_ok: bool
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        streams = [self._entries(partition, lower, upper, stale_ok) for partition in partitions]
        merged = heapq.merge(*streams)
        for key, entries in groupby(merged, key=lambda entry: split_record_key(codec, entry[0])[1]):
            found = _visible(codec, entries)
            if found:
                yield key, found

    def status(self, limits: LagLimits, tables: Mapping[str, TableConfig] | None = None) -> dict[str, Any]:
        answering = self._routes.look()
        return {
            "application": self._config.application,
            "store": self._config.store,
            "partitions": [
                partition_status(number, end_offset, answering, limits)
                for number, end_offset in enumerate(self._end_offsets())
            ],
            "agents": [dict(one.agent) for one in answering],
            "tables": table_statuses(tables or {}, answering, limits),
        }

    def refuse_if_running(self) -> None:
        """A batch of another driver that is alive must not lose its state under its feet."""
        statuses = [status for one in self._routes.look() for status in one.partitions.values()]
        running = [status["batch_open"] for status in statuses if status["batch_running"]]
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

    def _entries(
        self, partition: int, start: bytes, end: bytes | None, stale_ok: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        def ask(agent: AgentClient) -> list[tuple[bytes, bytes]]:
            return agent.scan(self._config, partition, start, end, _PAGE, stale_ok=stale_ok)

        while True:
            page = self._routes.ask(partition, ask, stale_ok=stale_ok)
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


def _visible(codec: KeyCodec, entries: Any) -> dict[str, Any]:
    now_ms = _now_ms()
    found = {}
    for entry_key, data in entries:
        value = decode_visible(data, now_ms)
        if value is not ABSENT:
            found[split_record_key(codec, entry_key)[2]] = value
    return found


def _now_ms() -> int:
    return int(time.time() * 1000)
