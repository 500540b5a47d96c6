"""Reading state from outside a batch: no epoch, no transactional id, nothing changed."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from changelog_state.agent.client import AgentClient
from changelog_state.changelog import clients
from changelog_state.changelog.control import read_control, verify_identity
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import StoreIdentity
from changelog_state.changelog.topic import lookup_topic
from changelog_state.cluster_status import partition_status, table_statuses
from changelog_state.codec.entries import is_header, name_suffix
from changelog_state.codec.keys import KeyCodec, record_key
from changelog_state.codec.kinds import DATA
from changelog_state.codec.partitioner import is_certain, partition_of
from changelog_state.config import StoreConfig, TableConfig
from changelog_state.errors import BatchRunningError, ConfigurationError, InvalidKeyError, SourceModeError
from changelog_state.routes import Routes
from changelog_state.state.context import StateContext
from changelog_state.state.outside import values_of
from changelog_state.state.ttl import ABSENT
from changelog_state.state.variables import Variable
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
    recorded = _recorded(config)
    return None if recorded is None else recorded.identity


class StateReader:
    def __init__(self, config: StoreConfig, routes: Routes, variables: Mapping[str, Variable] | None = None) -> None:
        self._config = config
        self._routes = routes
        self._variables = variables or {}

    def identity(self) -> StoreIdentity | None:
        return recorded_identity(self._config)

    def read(self, key: Any, name: str, default: Any, *, stale_ok: bool) -> Reading:
        recorded = _recorded(self._config)
        lag: dict[str, Any] = {"lag_records": 0, "lag_seconds": 0.0}
        replica, value = False, ABSENT
        if recorded is not None:
            codec = KeyCodec(tuple(recorded.identity.key_types))
            wanted = record_key(DATA, codec.encode(key), name)
            for partition in self._places(recorded.identity, codec, key):
                [found], lag = self._routes.ask(
                    partition,
                    lambda agent, partition=partition: agent.read_with_lag(  # type: ignore[misc]
                        self._config, partition, [wanted], stale_ok=stale_ok
                    ),
                    stale_ok=stale_ok,
                )
                replica = lag["phase"] != "ACTIVE"
                value = self._value(recorded, partition, name, wanted, found, stale_ok)
                if value is not ABSENT:
                    break
        return Reading(default if value is ABSENT else value, replica, lag["lag_records"], lag["lag_seconds"])

    def _value(
        self, recorded: _Recorded, partition: int, name: str, wanted: bytes, found: bytes | None, stale_ok: bool
    ) -> Any:
        context = self._context(recorded, partition, stale_ok)
        visible = None if found is None else context.visible(found)
        if found is None or visible is None:
            return ABSENT
        entries: list[tuple[bytes, bytes]] = [(b"", found)]
        if is_header(visible) is not None:
            stored = self._entries(partition, wanted + b"\0", wanted + b"\1", stale_ok)
            entries += [(entry[len(wanted) :], data) for entry, data in stored]
        suffix = name_suffix(name)
        return values_of(context, ((suffix + rest, data) for rest, data in entries)).get(name, ABSENT)

    def get_all(self, key: Any, *, stale_ok: bool = False) -> dict[str, Any]:
        recorded = _recorded(self._config)
        if recorded is None:
            return {}
        codec = KeyCodec(tuple(recorded.identity.key_types))
        prefix = DATA + codec.encode(key)
        for partition in self._places(recorded.identity, codec, key):
            entries = self._entries(partition, prefix, next_prefix(prefix), stale_ok)
            context = self._context(recorded, partition, stale_ok)
            found = values_of(context, ((entry[len(prefix) :], data) for entry, data in entries))
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
        recorded = _recorded(self._config)
        if recorded is None:
            return iter(())
        codec = KeyCodec(tuple(recorded.identity.key_types))
        if prefix is not None:
            lower = DATA + codec.prefix(prefix)
            upper = next_prefix(lower)
        else:
            lower = DATA if start is None else DATA + codec.bound(start)
            upper = next_prefix(DATA) if end is None else DATA + codec.bound(end)
        chosen = range(self._config.partitions) if partitions is None else partitions
        return islice(self._scan(recorded, codec, lower, upper, chosen, stale_ok), limit)

    def _scan(
        self,
        recorded: _Recorded,
        codec: KeyCodec,
        lower: bytes,
        upper: bytes | None,
        partitions: Sequence[int],
        stale_ok: bool,
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        def values(partition: int) -> Iterator[tuple[bytes, dict[str, Any]]]:
            context = self._context(recorded, partition, stale_ok)
            entries = self._entries(partition, lower, upper, stale_ok)
            records = ((_split(codec, entry), data) for entry, data in entries)
            for key, group in groupby(records, key=lambda record: record[0][0]):
                found = values_of(context, ((suffix, data) for (_, suffix), data in group))
                if found:
                    yield key, found

        for key, found in heapq.merge(*map(values, partitions), key=itemgetter(0)):
            yield codec.decode(key)[0], found

    def _context(self, recorded: _Recorded, partition: int, stale_ok: bool) -> StateContext:
        """Time as it is now."""
        now_ms = int(time.time() * 1000)
        reads = _AgentReads(self._config, self._routes, partition, stale_ok)
        return StateContext(
            now_ms, recorded.watermark_ms, variables=self._variables, generations=recorded.generations, reads=reads
        )

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
        if not is_certain(identity.partitioner):
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


@dataclass(frozen=True)
class _Recorded:
    """What the control topic tells readers."""

    identity: StoreIdentity
    watermark_ms: int | None
    generations: Mapping[str, Mapping[bytes, str]]


def _recorded(config: StoreConfig) -> _Recorded | None:
    if lookup_topic(config) is None:
        return None
    control = read_control(config)
    if control.epoch is None:
        return None
    identity = StoreIdentity.from_fields(vars(control.epoch))
    wanted = StoreIdentity.of(config, identity.partitioner, identity.key_types)
    verify_identity(config, identity, wanted)
    watermark_ms = None if control.batch is None else control.batch.watermark_after_ms
    return _Recorded(identity, watermark_ms, control.variables.writer_schemas())


@dataclass(frozen=True)
class _AgentReads:
    """A partition's records, from whoever has it."""

    config: StoreConfig
    routes: Routes
    partition: int
    stale_ok: bool

    def read(self, record_keys: list[bytes]) -> list[bytes | None]:
        return self.routes.ask(
            self.partition,
            lambda agent: agent.read_with_lag(self.config, self.partition, record_keys, stale_ok=self.stale_ok)[0],
            stale_ok=self.stale_ok,
        )

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return self.routes.ask(
            self.partition,
            lambda agent: agent.scan(self.config, self.partition, start, end, limit, stale_ok=self.stale_ok),
            stale_ok=self.stale_ok,
        )


def _split(codec: KeyCodec, entry: bytes) -> tuple[bytes, bytes]:
    """Encoded key and suffix of a record key."""
    _, end = codec.decode(entry, 1)
    return entry[1:end], entry[end:]
