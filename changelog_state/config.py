"""Frozen settings, checked when they are made."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from changelog_state.errors import ConfigurationError

__all__ = [
    "DEFAULT_RESTORE_MEMORY_MB",
    "FORMAT_VERSION",
    "ClusterConfig",
    "KafkaSettings",
    "LogSettings",
    "StoreConfig",
    "TableConfig",
    "default_state_dir",
    "log_from_json",
]

FORMAT_VERSION = 1
DEFAULT_RESTORE_MEMORY_MB = 512

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_TOPIC = 249
_RESERVED_CLIENT_SETTINGS = {
    "bootstrap.servers": "bootstrap_servers",
    "transactional.id": None,
    "isolation.level": None,
    "group.id": None,
    "enable.auto.commit": None,
    "enable.idempotence": None,
}


class KafkaSettings(Protocol):
    """How an application's Kafka is reached: all that a client has to know."""

    @property
    def application(self) -> str: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def kafka(self) -> Mapping[str, Any]: ...
    @property
    def topic(self) -> Mapping[str, Any]: ...


class LogSettings(KafkaSettings, Protocol):
    """A log that a local store is made from: a store's changelog, or whatever a global table follows."""

    @property
    def name(self) -> str: ...
    @property
    def changelog_topic(self) -> str: ...
    @property
    def raw_keys(self) -> bool:
        """Whether its keys are a producer's own, all of them data; a changelog's begin with their kind."""

    @property
    def keeps_images(self) -> bool:
        """Whether the store keeps what its last batch has replaced, so that it can be replayed."""

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class ClusterConfig:
    """An application and its Kafka, whatever stores it has: what agents need to find each other."""

    application: str
    bootstrap_servers: str
    kafka: Mapping[str, Any] = field(default_factory=dict)
    topic: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_name("application", self.application)
        _check_topic(self.agents_topic, "the application's name")
        _check_kafka(self)

    @property
    def agents_topic(self) -> str:
        return f"{self.application}-agents"


@dataclass(frozen=True)
class StoreConfig:
    """What identifies a store and how its Kafka is reached. Travels to agents as JSON."""

    application: str
    store: str
    bootstrap_servers: str
    partitions: int
    kafka: Mapping[str, Any] = field(default_factory=dict)
    topic: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what in ("application", "store"):
            _check_name(what, getattr(self, what))
        _check_topic(self.changelog_topic, "the application's or the store's name")
        if isinstance(self.partitions, bool) or not isinstance(self.partitions, int) or self.partitions < 1:
            raise ConfigurationError(f"partitions is {self.partitions!r}; give a whole number of at least 1")
        _check_kafka(self)

    @property
    def cluster(self) -> ClusterConfig:
        return ClusterConfig(self.application, self.bootstrap_servers, self.kafka, self.topic)

    @property
    def name(self) -> str:
        return f"{self.application}/{self.store}"

    @property
    def changelog_topic(self) -> str:
        return f"{self.application}-{self.store}-changelog"

    @property
    def control_topic(self) -> str:
        return f"{self.application}-{self.store}-control"

    @property
    def raw_keys(self) -> bool:
        return False

    @property
    def keeps_images(self) -> bool:
        return True

    def transactional_id(self, partition: int) -> str:
        return f"{self.application}-{self.store}-{partition}"

    @property
    def control_transactional_id(self) -> str:
        return f"{self.application}-{self.store}-control"

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["kafka"] = dict(self.kafka)
        plain["topic"] = dict(self.topic)
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> StoreConfig:
        return cls(**plain)


@dataclass(frozen=True)
class TableConfig:
    """What an agent has to know of a global table to follow it. Travels to agents as JSON."""

    application: str
    """Of the service that looks things up in it."""
    table: str
    bootstrap_servers: str
    changelog_topic: str
    raw_keys: bool
    """A plain topic; else the changelog of a store."""
    kafka: Mapping[str, Any] = field(default_factory=dict)
    topic: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_name("application", self.application)
        _check_name("global table", self.table)
        _check_name("topic", self.changelog_topic)
        _check_topic(self.changelog_topic, "it")
        _check_kafka(self)

    @property
    def name(self) -> str:
        return f"global table {self.application}/{self.table}"

    @property
    def keeps_images(self) -> bool:
        return False

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"kafka": dict(self.kafka), "topic": dict(self.topic)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> TableConfig:
        return cls(**plain)


def log_from_json(plain: Mapping[str, Any]) -> LogSettings:
    """Either of the two, by what only a table has."""
    return TableConfig.from_json(plain) if "table" in plain else StoreConfig.from_json(plain)


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not _LEGAL_NAME.fullmatch(name) or not name.strip("."):
        raise ConfigurationError(
            f"{what} name is not usable in a Kafka topic: {name!r}; "
            "use letters, digits, '.', '_' and '-', not only dots"
        )


def _check_topic(name: str, made_of: str) -> None:
    if len(name) > _LONGEST_TOPIC:
        raise ConfigurationError(
            f"topic name is longer than {_LONGEST_TOPIC} characters: {name!r}; shorten {made_of}"
        )


def _check_kafka(config: KafkaSettings) -> None:
    servers: object = config.bootstrap_servers
    if not isinstance(servers, str) or not servers.strip():
        raise ConfigurationError(f"bootstrap_servers is {servers!r}; give Kafka's address, e.g. 'localhost:9092'")
    for setting, instead in _RESERVED_CLIENT_SETTINGS.items():
        if setting in config.kafka:
            remedy = f"use {instead}= instead" if instead else "the protocol depends on it; remove it"
            raise ConfigurationError(f"kafka[{setting!r}] cannot be set; {remedy}")


def default_state_dir() -> Path:
    """``$CHANGELOG_STATE_DIR``, else the per-user state directory."""
    given = os.environ.get("CHANGELOG_STATE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "changelog-state"
