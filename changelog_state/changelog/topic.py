"""The changelog, control and agents topics: created on first use, verified on every use."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from changelog_state.changelog import clients
from changelog_state.config import ClusterConfig, KafkaSettings, StoreConfig
from changelog_state.errors import BrokerUnavailableError, ChangelogMismatchError, ConfigurationError

__all__ = [
    "RECORD_OVERHEAD_BYTES",
    "Topic",
    "delete_topics",
    "end_offsets",
    "ensure_agents_topic",
    "ensure_topics",
    "lookup_any_topic",
    "lookup_topic",
]

logger = logging.getLogger(__name__)

RECORD_OVERHEAD_BYTES = 512
"""What a record takes beside its key, its value and its headers, at the most."""

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_MEBIBYTE = 1024 * 1024
_ANSWER_SECONDS = clients.REQUEST_TIMEOUT_SECONDS
_PATIENCE_SECONDS = 2 * _ANSWER_SECONDS
"""Longer than the client's own limit, so that it is the client that says what is wrong."""

_DEFAULTS: dict[str, str] = {
    "cleanup.policy": "compact",
    # How long a batch's predecessors surely stay readable, so that a rebuilt store can replay that batch.
    "min.compaction.lag.ms": str(_HOUR_MS),
    # How long a deletion stays readable: a store that was away for longer is rebuilt.
    "delete.retention.ms": str(_DAY_MS),
    "segment.bytes": str(128 * _MEBIBYTE),
    "segment.ms": str(_DAY_MS),
    "max.message.bytes": str(16 * _MEBIBYTE),
    # The broker's clock: the compaction lag must not depend on what a producer says.
    "message.timestamp.type": "LogAppendTime",
}
_CONTROL_DEFAULTS = _DEFAULTS | {"segment.bytes": str(4 * _MEBIBYTE), "min.compaction.lag.ms": "0"}
_NOT_TOPIC_CONFIG = frozenset({"replication.factor"})
_FIXED = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}


@dataclass(frozen=True)
class Topic:
    name: str
    topic_id: str
    partitions: int
    settings: Mapping[str, str]

    @property
    def largest_record_bytes(self) -> int:
        return int(self.settings["max.message.bytes"])

    @property
    def delete_retention_ms(self) -> int:
        return int(self.settings["delete.retention.ms"])


def ensure_topics(config: StoreConfig) -> Topic:
    """Create what is missing, verify what is there; returns the changelog topic."""
    admin = clients.admin(config)
    asked = _asked_settings(config)
    wanted: tuple[tuple[str, int, dict[str, str], dict[str, str]], ...] = (
        (config.changelog_topic, config.partitions, _DEFAULTS | asked, _retention(_DEFAULTS) | asked),
        (config.control_topic, 1, _CONTROL_DEFAULTS, {}),
    )
    found: list[Topic] = []
    for name, partitions, settings, explicit in wanted:
        topic = _found_or_created(admin, config, name, partitions, settings)
        _verify(topic, partitions, _FIXED | explicit)
        found.append(topic)
    return found[0]


def ensure_agents_topic(config: ClusterConfig) -> Topic:
    """Create the topic in which agents register if it is missing; verify it if it is there."""
    topic = _found_or_created(clients.admin(config), config, config.agents_topic, 1, _CONTROL_DEFAULTS)
    if topic.partitions != 1:
        raise ChangelogMismatchError(
            f"topic {topic.name} has {topic.partitions} partitions, expected 1; delete it: the agents of application "
            f"{config.application} make it again when they are started, or use another application name"
        )
    _verify_settings(topic, _FIXED)
    return topic


def lookup_topic(config: StoreConfig) -> Topic | None:
    """The changelog topic as it is, verified for its shape; None if there is none. Changes nothing."""
    topic = _lookup(clients.admin(config), config, config.changelog_topic)
    if topic is not None:
        _verify(topic, config.partitions, _FIXED)
    return topic


def lookup_any_topic(config: KafkaSettings, name: str) -> Topic | None:
    """A topic as it is, whoever made it and whatever for; None if there is none. Changes nothing."""
    return _lookup(clients.admin(config), config, name)


def end_offsets(config: KafkaSettings, topic: Topic) -> dict[int, int]:
    """Of each partition, the offset up to which transactions are decided now."""
    admin = clients.admin(config)  # answers come only as long as it lives
    wanted = {TopicPartition(topic.name, number): OffsetSpec.latest() for number in range(topic.partitions)}
    with clients.broker_errors(config, f"read the end offsets of {topic.name}"):
        asked = admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_ANSWER_SECONDS
        )
        return {place.partition: int(found.result(_PATIENCE_SECONDS).offset) for place, found in asked.items()}


def delete_topics(config: StoreConfig) -> None:
    """Delete changelog and control topic, and wait until they are gone."""
    admin = clients.admin(config)
    names = [config.changelog_topic, config.control_topic]
    for future in admin.delete_topics(names, operation_timeout=_ANSWER_SECONDS).values():
        with clients.broker_errors(config, "delete topics"):
            try:
                future.result(_PATIENCE_SECONDS)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
    deadline = time.monotonic() + _ANSWER_SECONDS
    while any(_lookup(admin, config, name) for name in names):
        if time.monotonic() > deadline:
            raise BrokerUnavailableError(
                f"topics {names} are still there {_ANSWER_SECONDS:.0f} s after deletion; look at the broker's log"
            )
        time.sleep(0.05)


def _retention(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: settings[name] for name in ("min.compaction.lag.ms", "delete.retention.ms")}


def _asked_settings(config: StoreConfig) -> dict[str, str]:
    asked = {name: _as_text(value) for name, value in config.topic.items() if name not in _NOT_TOPIC_CONFIG}
    for name, value in _FIXED.items():
        if asked.get(name, value) != value:
            raise ConfigurationError(f"topic[{name!r}] is {asked[name]!r}; a changelog needs {value!r}: leave it out")
    return asked


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _found_or_created(
    admin: AdminClient, config: KafkaSettings, name: str, partitions: int, settings: dict[str, str]
) -> Topic:
    topic = _lookup(admin, config, name)
    if topic is None:
        _create(admin, config, name, partitions, settings)
        topic = _await_topic(admin, config, name)
    return topic


def _lookup(admin: AdminClient, config: KafkaSettings, name: str) -> Topic | None:
    with clients.broker_errors(config, f"describe topic {name}"):
        description = admin.describe_topics(TopicCollection([name]), request_timeout=_ANSWER_SECONDS)[name]
        try:
            described = description.result(_PATIENCE_SECONDS)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            entries = admin.describe_configs([resource], request_timeout=_ANSWER_SECONDS)[resource].result(
                _PATIENCE_SECONDS
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
    settings = {entry.name: entry.value for entry in entries.values()}
    return Topic(name, str(described.topic_id), len(described.partitions), settings)


def _create(admin: AdminClient, config: KafkaSettings, name: str, partitions: int, settings: dict[str, str]) -> None:
    replication = int(config.topic.get("replication.factor", -1))
    new = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=settings)
    future = admin.create_topics([new], request_timeout=_ANSWER_SECONDS)[name]
    with clients.broker_errors(config, f"create topic {name}"):
        try:
            future.result(_PATIENCE_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    logger.info("created topic %s with %d partitions", name, partitions)


def _await_topic(admin: AdminClient, config: KafkaSettings, name: str) -> Topic:
    deadline = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < deadline:
        topic = _lookup(admin, config, name)
        if topic is not None and topic.partitions:
            return topic
        time.sleep(0.02)
    raise BrokerUnavailableError(
        f"topic {name} was created but does not appear on {config.bootstrap_servers} "
        f"within {_ANSWER_SECONDS:.0f} s; look at the broker's log"
    )


def _verify(topic: Topic, partitions: int, settings: Mapping[str, str]) -> None:
    if topic.partitions != partitions:
        raise ChangelogMismatchError(
            f"topic {topic.name} has {topic.partitions} partitions, the store was given partitions={partitions}; "
            f"use partitions={topic.partitions}, or another store name (a store's partition count is fixed)"
        )
    _verify_settings(topic, settings)


def _verify_settings(topic: Topic, settings: Mapping[str, str]) -> None:
    for name, expected in settings.items():
        found = topic.settings.get(name)
        if found != expected:
            raise ChangelogMismatchError(
                f"topic {topic.name} has {name}={found}, expected {expected}; change it with "
                f"`kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} "
                f"--add-config {name}={expected}`, or give the value it has in topic="
            )
