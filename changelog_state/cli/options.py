"""Options that all commands share: each also a variable ``CHANGELOG_STATE_…``, or a line in ``--config FILE``.

A command declares its own parameters behind a ``Common`` and is wrapped by ``with_common_options``.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from changelog_state.cli.selection import parse_partitions
from changelog_state.cli.target import SERVICE_SETTINGS, Target, changelog_partitions
from changelog_state.config import ClusterConfig, StoreConfig, default_state_dir
from changelog_state.errors import ConfigurationError
from changelog_state.store.directory import local_partitions

__all__ = ["KAFKA_VARIABLE", "Common", "with_common_options"]

KAFKA_VARIABLE = "CHANGELOG_STATE_KAFKA"
"""Client settings as JSON. What a file says comes first."""


@dataclass(frozen=True)
class Common:
    """What was given; the methods say what is needed of it."""

    application: Annotated[
        str | None, typer.Option(envvar="CHANGELOG_STATE_APPLICATION", help="The application's name.")
    ] = None
    store: Annotated[str | None, typer.Option(envvar="CHANGELOG_STATE_STORE", help="The store's name.")] = None
    bootstrap_servers: Annotated[
        str | None, typer.Option(envvar="CHANGELOG_STATE_BOOTSTRAP_SERVERS", help="Kafka, e.g. localhost:9092.")
    ] = None
    state_dir: Annotated[
        Path | None, typer.Option(envvar="CHANGELOG_STATE_DIR", help="Where this node keeps its stores.")
    ] = None
    partitions: Annotated[
        str | None, typer.Option(envvar="CHANGELOG_STATE_PARTITIONS", help="Only these, e.g. 0-3,7.")
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="CHANGELOG_STATE_CONFIG",
            help="A TOML file with these names and the tables kafka and topic.",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False

    def target(self) -> Target:
        """The store and its Kafka; how many partitions it has is what the changelog says."""
        settings = self._settings("application", "store", "bootstrap_servers")
        selection = settings.pop("partitions", None)
        if isinstance(selection, int):  # a service's number of partitions, checked when the topic is looked up
            settings["partitions"], selection = selection, None
        else:
            settings["partitions"] = changelog_partitions(settings)
        return Target(settings, parse_partitions(selection, settings["partitions"]))

    def local_target(self) -> Target:
        """The store as it is in the state directory; Kafka is not asked."""
        settings = self._settings("application", "store")
        names = settings["application"], settings["store"]
        StoreConfig(*names, "not asked", 1)  # refuses what cannot be a name, and would be a path here
        here = local_partitions(settings["state_dir"], *names)
        selection = settings.pop("partitions", None)
        if isinstance(selection, str):
            chosen = set(parse_partitions(selection, _MOST_PARTITIONS))
            here = [partition for partition in here if partition in chosen]
        return Target(settings, here)

    def cluster(self) -> ClusterConfig:
        """The application and its Kafka, whatever stores it has."""
        settings = self._settings("application", "bootstrap_servers")
        return ClusterConfig(
            settings["application"],
            settings["bootstrap_servers"],
            settings.get("kafka", {}),
            settings.get("topic", {}),
        )

    def directory(self) -> Path:
        return Path(self._settings()["state_dir"])

    def _settings(self, *needed: str) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in _SETTINGS if getattr(self, name) is not None}
        settings = _from_file(self.config) | given
        if os.environ.get(KAFKA_VARIABLE):
            settings["kafka"] = _from_variable() | settings.get("kafka", {})
        for name in needed:
            if name not in settings:
                option = "--" + name.replace("_", "-")
                raise ConfigurationError(
                    f"{name} is not given; use {option}, CHANGELOG_STATE_{name.upper()}, or --config FILE"
                )
        settings["state_dir"] = Path(settings.get("state_dir") or default_state_dir())
        return settings


_MOST_PARTITIONS = 100_000
"""More than a topic has: without Kafka it is not known how many there are."""
_SETTINGS = ("application", "store", "bootstrap_servers", "state_dir", "partitions")


def with_common_options(
    command: Callable[..., None] | None = None, *, without: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """The command with the fields of ``Common`` as options behind its own ones."""
    if command is None:
        return functools.partial(with_common_options, without=without)
    hints = get_type_hints(Common, include_extras=True)
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(Common)
        if field.name not in without
    ]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        common = Common(**{parameter.name: given.pop(parameter.name) for parameter in shared})
        command(common, **given)

    parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *shared]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped


def _from_variable() -> dict[str, Any]:
    """Client settings for processes that have no file; they may hold secrets, so an error does not show them."""
    try:
        found = json.loads(os.environ[KAFKA_VARIABLE])
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"{KAFKA_VARIABLE} is not a JSON object; give the clients' settings, e.g. "
            '{"security.protocol": "SASL_SSL"}'
        )
    return found


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"config file cannot be read: {path} ({error})") from error
    unknown = sorted(set(found) - SERVICE_SETTINGS)
    if unknown:
        raise ConfigurationError(
            f"config file {path} has {', '.join(unknown)}, which is no setting; known are "
            + ", ".join(sorted(SERVICE_SETTINGS))
        )
    return found
