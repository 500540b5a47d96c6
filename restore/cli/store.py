"""What the commands need to know of a store: its changelog, what it was made as, who runs it here."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from changelog_state.agent.launcher import find_agent
from changelog_state.changelog.record import StoreIdentity
from changelog_state.changelog.topic import Topic, lookup_topic
from changelog_state.cli.target import Target
from changelog_state.errors import ChangelogMismatchError, StateDirectoryError, UnavailableError
from changelog_state.reading import recorded_identity
from changelog_state.store.directory import local_partitions

__all__ = ["MemoryMb", "agent_view", "changelog_of", "refuse_without_stores"]

MemoryMb = Annotated[
    int | None,
    typer.Option(min=1, help="What reading the log may use, in MB.", show_default="512, or as the file says"),
]


def changelog_of(target: Target) -> tuple[Topic, StoreIdentity | None]:
    """The changelog and what it says it is, verified: names, partitions, format. None if it was never written."""
    config = target.config
    topic = lookup_topic(config)
    if topic is None:
        raise ChangelogMismatchError(
            f"there is no changelog topic {config.changelog_topic} on {config.bootstrap_servers}; "
            "check --application and --store"
        )
    return topic, recorded_identity(config)


def agent_view(target: Target) -> tuple[dict[str, Any] | None, dict[int, dict[str, Any]]]:
    """The agent that answers for this state directory, and what it says of each partition; none, nothing."""
    agent = find_agent(target.state_dir)
    if agent is None:
        return None, {}
    try:
        return agent.hello(), {status["partition"]: status for status in agent.status(target.config)}
    except UnavailableError:
        return None, {}  # it has stopped since
    finally:
        agent.close()


def refuse_without_stores(target: Target) -> None:
    """Nothing to look at is a wrong directory or a wrong name more often than it is good news."""
    if not any((target.path(partition) / "db").is_dir() for partition in target.partitions):
        here = local_partitions(target.state_dir, target.application, target.store)
        raise StateDirectoryError(
            f"there is no local store of {target.name} in {target.state_dir}"
            + (f" for the chosen partitions, only for {here}" if here else "")
            + "; check --state-dir, --application, --store and --partitions"
        )
