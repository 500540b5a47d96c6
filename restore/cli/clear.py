"""``changelog-restore clear``: delete local state and, if told so, the changelog."""

from __future__ import annotations

import shutil
import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from changelog_state.changelog.topic import delete_topics
from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import bytes_text, print_json
from changelog_state.cli.target import Target
from changelog_state.errors import BatchRunningError, ConfigurationError, StateDirectoryError
from changelog_state.store.directory import StateDirectory, size_of
from restore.activity import has_control_topic, seconds_since_control
from restore.cli.store import agent_view, changelog_of

__all__ = ["clear"]

_ACTIVE_SECONDS = 60.0
_AGENT_STOPS_SECONDS = 30.0


class Changelog(StrEnum):
    DELETE = "delete"
    TOMBSTONE = "tombstone"


@with_common_options
def clear(
    common: Common,
    changelog: Annotated[
        Changelog | None,
        typer.Option(
            help="Also the changelog: delete its topics, or write a tombstone for each value and keep them.",
            show_default="only local state",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Although a driver has written to the control topic within a minute.")
    ] = False,
) -> None:
    """Delete the local stores of this node; with --changelog all state there is, for ever.

    Without --changelog nothing is lost: stores are rebuilt from the changelog. Refused while an agent is using the
    directory; with --changelog also while a query seems active. Stop queries on other nodes first.

    With --json: application, store, state_dir; partitions deleted here (partition, bytes); changelog ("delete",
    "tombstone" or null), values_deleted (by tombstones, or null), topics (that were deleted).
    """
    local = common.local_target()
    target = common.target() if changelog is not None else None
    if target is not None:
        _refuse_if_active(target, force)
    _check_unused(local)
    if not yes:
        typer.confirm(_question(local, changelog), abort=True, err=True)
    document: dict[str, Any] = {
        "application": local.application,
        "store": local.store,
        "state_dir": str(local.state_dir),
        "partitions": [],
        "changelog": changelog,
        "values_deleted": None,
        "topics": [],
    }
    if target is not None and changelog is Changelog.TOMBSTONE:
        with target.service() as service:
            document["values_deleted"] = service.clear()
    document["partitions"] = _delete_local(local)
    if target is not None and changelog is Changelog.DELETE:
        delete_topics(target.config)
        document["topics"] = [target.config.changelog_topic, target.config.control_topic]
    if common.as_json:
        print_json(document)
    else:
        _print(document)


def _refuse_if_active(target: Target, force: bool) -> None:
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


def _check_unused(target: Target) -> None:
    if target.state_dir.is_dir():
        StateDirectory(target.state_dir).close()


def _question(target: Target, changelog: Changelog | None) -> str:
    here = ", ".join(map(str, target.partitions)) or "none"
    what = f"Delete the local stores of {target.name} in {target.state_dir} (partitions: {here})"
    if changelog is Changelog.DELETE:
        return what + " and its changelog and control topics? The state is then lost for ever."
    if changelog is Changelog.TOMBSTONE:
        return what + " and every value in its changelog? The state is then lost for ever."
    return what + "? They can be rebuilt from the changelog."


def _delete_local(target: Target) -> list[dict[str, Any]]:
    if not target.state_dir.is_dir():
        return []
    deleted = []
    directory = _held(target)
    try:
        for partition in target.partitions:
            size = sum(size_of(part)[0] for part in target.path(partition).iterdir())
            shutil.rmtree(target.path(partition))
            deleted.append({"partition": partition, "bytes": size})
        for empty in (target.store_path(), target.store_path().parent):
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()
    finally:
        directory.close()
    return deleted


def _held(target: Target) -> StateDirectory:
    """The directory for this process alone. An agent that wrote the tombstones needs a moment to stop."""
    deadline = time.monotonic() + _AGENT_STOPS_SECONDS
    while True:
        try:
            return StateDirectory(target.state_dir)
        except StateDirectoryError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _print(document: dict[str, Any]) -> None:
    for row in document["partitions"]:
        print(f"partition {row['partition']}: {bytes_text(row['bytes'])} deleted from {document['state_dir']}")
    if not document["partitions"]:
        print(f"there was no local store in {document['state_dir']}")
    if document["values_deleted"] is not None:
        print(f"{document['values_deleted']:,} values deleted from the changelog")
    for topic in document["topics"]:
        print(f"topic {topic} deleted")
