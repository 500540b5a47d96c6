"""The store that a command is about: its configuration, its directory, the chosen partitions."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from changelog_state.changelog import clients
from changelog_state.config import DEFAULT_RESTORE_MEMORY_MB, StoreConfig
from changelog_state.errors import ChangelogMismatchError, ConfigurationError
from changelog_state.service import StateService
from changelog_state.store.directory import partition_path, store_path

__all__ = ["SERVICE_SETTINGS", "Target", "changelog_partitions", "parse_key"]

SERVICE_SETTINGS = frozenset(inspect.signature(StateService).parameters) - {"restore_listener", "global_tables"}
"""What a file can say."""


@dataclass(frozen=True)
class Target:
    settings: dict[str, Any]
    partitions: list[int]
    """Those that the command is about."""

    @property
    def application(self) -> str:
        return str(self.settings["application"])

    @property
    def store(self) -> str:
        return str(self.settings["store"])

    @property
    def name(self) -> str:
        return f"{self.application}/{self.store}"

    @property
    def state_dir(self) -> Path:
        return Path(self.settings["state_dir"]).absolute()

    @property
    def config(self) -> StoreConfig:
        return _config(self.settings, self.settings["partitions"])

    @property
    def all_partitions(self) -> bool:
        return len(self.partitions) == int(self.settings["partitions"])

    @property
    def restore_memory_mb(self) -> int:
        return int(self.settings.get("restore_memory_mb", DEFAULT_RESTORE_MEMORY_MB))

    def store_path(self) -> Path:
        return store_path(self.state_dir, self.application, self.store)

    def path(self, partition: int) -> Path:
        return partition_path(self.state_dir, self.application, self.store, partition)

    @contextmanager
    def service(self) -> Iterator[StateService]:
        service = StateService(**self.settings)
        try:
            yield service
        finally:
            service.close()


def changelog_partitions(settings: dict[str, Any]) -> int:
    """How many partitions the changelog has."""
    config = _config(settings, 1)
    with clients.broker_errors(config, f"describe topic {config.changelog_topic}"):
        found = clients.admin(config).list_topics(config.changelog_topic, timeout=clients.REQUEST_TIMEOUT_SECONDS)
    partitions = len(found.topics[config.changelog_topic].partitions)
    if not partitions:
        raise ChangelogMismatchError(
            f"there is no changelog topic {config.changelog_topic} on {config.bootstrap_servers}; "
            "check --application and --store"
        )
    return partitions


def parse_key(text: str, types: list[str] | None) -> Any:
    """A key as typed: JSON for numbers and several columns, plain text for strings, hex for binary."""
    if types is None or types == ["string"]:
        return text
    try:
        if types == ["binary"]:
            return bytes.fromhex(text)
        parsed = json.loads(text)
    except ValueError as error:
        wanted = "hex" if types == ["binary"] else "JSON"
        raise ConfigurationError(f"key {text!r} is not {wanted}; this store's keys are {types}") from error
    return tuple(parsed) if isinstance(parsed, list) else parsed


def _config(settings: dict[str, Any], partitions: int) -> StoreConfig:
    return StoreConfig(
        settings["application"],
        settings["store"],
        settings["bootstrap_servers"],
        partitions,
        settings.get("kafka", {}),
        settings.get("topic", {}),
    )
