"""Options that the commands share: each also a variable ``CHANGELOG_STATE_…``, or a line in ``--config FILE``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from changelog_state.changelog import clients
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogMismatchError, ConfigurationError
from changelog_state.service import StateService

__all__ = [
    "Application",
    "BootstrapServers",
    "Config",
    "Json",
    "StateDir",
    "Store",
    "opened_service",
    "parse_key",
    "print_json",
]

Application = Annotated[
    str | None, typer.Option(envvar="CHANGELOG_STATE_APPLICATION", help="The application's name.")
]
Store = Annotated[str | None, typer.Option(envvar="CHANGELOG_STATE_STORE", help="The store's name.")]
BootstrapServers = Annotated[
    str | None, typer.Option(envvar="CHANGELOG_STATE_BOOTSTRAP_SERVERS", help="Kafka, e.g. localhost:9092.")
]
StateDir = Annotated[
    Path | None, typer.Option(envvar="CHANGELOG_STATE_DIR", help="Where this node keeps its stores.")
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        envvar="CHANGELOG_STATE_CONFIG",
        help="A TOML file with application, store, bootstrap_servers, state_dir, [kafka] and [topic].",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@contextmanager
def opened_service(
    application: str | None,
    store: str | None,
    bootstrap_servers: str | None,
    state_dir: Path | None,
    config: Path | None,
) -> Iterator[StateService]:
    """A service for reading; its number of partitions is what the changelog has."""
    settings = _from_file(config)
    given = {
        "application": application,
        "store": store,
        "bootstrap_servers": bootstrap_servers,
        "state_dir": state_dir,
    }
    settings |= {name: value for name, value in given.items() if value is not None}
    for name in ("application", "store", "bootstrap_servers"):
        if name not in settings:
            option = "--" + name.replace("_", "-")
            raise ConfigurationError(
                f"{name} is not given; use {option}, CHANGELOG_STATE_{name.upper()}, or --config FILE"
            )
    settings.setdefault("partitions", _partitions(settings))
    service = StateService(**settings)
    try:
        yield service
    finally:
        service.close()


def parse_key(text: str, service: StateService) -> Any:
    """A key as typed: JSON for numbers and several columns, plain text for strings."""
    types = service.key_types()
    if types is None or types == ["string"]:
        return text
    if types == ["binary"]:
        return bytes.fromhex(text)
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"key {text!r} is not JSON; this store's keys are {types}") from error
    return tuple(parsed) if isinstance(parsed, list) else parsed


def print_json(document: Any) -> None:
    print(json.dumps(document, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    raise TypeError(f"not JSON: {type(value).__name__}")


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"config file cannot be read: {path} ({error})") from error


def _partitions(settings: dict[str, Any]) -> int:
    config = StoreConfig(
        settings["application"],
        settings["store"],
        settings["bootstrap_servers"],
        1,
        settings.get("kafka", {}),
    )
    with clients.broker_errors(config, f"describe topic {config.changelog_topic}"):
        found = clients.admin(config).list_topics(config.changelog_topic, timeout=clients.REQUEST_TIMEOUT_SECONDS)
    partitions = len(found.topics[config.changelog_topic].partitions)
    if not partitions:
        raise ChangelogMismatchError(
            f"there is no changelog topic {config.changelog_topic} on {config.bootstrap_servers}; "
            "check --application and --store"
        )
    return partitions
