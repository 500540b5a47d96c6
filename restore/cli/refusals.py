"""When state must not be deleted: while someone is using it."""

from __future__ import annotations

import time

from changelog_state.cli.target import Target
from changelog_state.errors import BatchRunningError, ConfigurationError, StateDirectoryError
from changelog_state.store.directory import StateDirectory
from restore.activity import has_control_topic, seconds_since_control
from restore.cli.store import agent_view, changelog_of

__all__ = ["held_directory", "refuse_if_active", "refuse_if_used"]

_ACTIVE_SECONDS = 60.0
_AGENT_STOPS_SECONDS = 30.0


def refuse_if_active(target: Target, *, force: bool) -> None:
    """
    1. The names are really this store's: two others may lead to the same topics.
    2. No batch is running here, and no driver has shown itself lately.
    """
    if not target.all_partitions:
        raise ConfigurationError(
            f"partitions {target.partitions} are chosen, but --changelog is about all of {target.name}; "
            "leave --partitions out"
        )
    _, statuses = agent_view(target)
    for status in statuses.values():
        if status["batch_running"]:
            batch = status["batch_open"]
            raise BatchRunningError(
                f"batch {batch['batch']} of query {batch['query']} is running on store {target.name}; "
                "stop the query first"
            )
    if not has_control_topic(target.config):
        return
    changelog_of(target)
    age = seconds_since_control(target.config)
    if age is not None and age < _ACTIVE_SECONDS and not force:
        raise BatchRunningError(
            f"a driver has written to {target.config.control_topic} {age:.0f} s ago, so a query on store "
            f"{target.name} seems active; stop it and wait a minute, or use --force if it is stopped"
        )


def refuse_if_used(target: Target) -> None:
    """An agent or another command has the directory; the error names its process."""
    if target.state_dir.is_dir():
        StateDirectory(target.state_dir).close()


def held_directory(target: Target) -> StateDirectory:
    """The directory for this process alone. An agent that wrote the tombstones needs a moment to stop."""
    deadline = time.monotonic() + _AGENT_STOPS_SECONDS
    while True:
        try:
            return StateDirectory(target.state_dir)
        except StateDirectoryError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
