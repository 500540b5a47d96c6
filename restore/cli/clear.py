"""``changelog-restore clear``: delete local state and, if told so, the changelog."""

from __future__ import annotations

import shutil
from enum import StrEnum
from typing import Annotated, Any

import typer

from changelog_state.changelog.topic import delete_topics
from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import bytes_text, print_json
from changelog_state.cli.target import Target
from changelog_state.errors import ConfigurationError
from changelog_state.store.directory import size_of
from restore.cli.refusals import held_directory, refuse_if_active, refuse_if_used

__all__ = ["clear"]


class How(StrEnum):
    DELETE = "delete"
    TOMBSTONE = "tombstone"


@with_common_options
def clear(
    common: Common,
    how: Annotated[
        How | None,
        typer.Argument(
            help="With --changelog: delete its topics, or write a tombstone for each value and keep them.",
            show_default="delete",
        ),
    ] = None,
    changelog: Annotated[
        bool, typer.Option("--changelog", help="Clear the changelog too. The state is then lost for ever.")
    ] = False,
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
    if how is not None and not changelog:
        raise ConfigurationError(f"{how} is about the changelog; add --changelog, or leave it out")
    how = (how or How.DELETE) if changelog else None
    local = common.local_target()
    target = common.target() if changelog else None
    if target is not None:
        refuse_if_active(target, force=force)
    refuse_if_used(local)
    if not yes:
        typer.confirm(_question(local, how), abort=True, err=True)
    document: dict[str, Any] = {
        "application": local.application,
        "store": local.store,
        "state_dir": str(local.state_dir),
        "partitions": [],
        "changelog": how,
        "values_deleted": None,
        "topics": [],
    }
    if target is not None and how is How.TOMBSTONE:
        with target.service() as service:
            document["values_deleted"] = service.clear()
    # Asked again: the agent that wrote tombstones has made stores of its own.
    document["partitions"] = _delete_local(common.local_target())
    if target is not None and how is How.DELETE:
        delete_topics(target.config)
        document["topics"] = [target.config.changelog_topic, target.config.control_topic]
    if common.as_json:
        print_json(document)
    else:
        _print(document)


def _question(target: Target, how: How | None) -> str:
    here = ", ".join(map(str, target.partitions)) or "none"
    what = f"Delete the local stores of {target.name} in {target.state_dir} (partitions: {here})"
    if how is How.DELETE:
        return what + " and its changelog and control topics? The state is then lost for ever."
    if how is How.TOMBSTONE:
        return what + " and every value in its changelog? The state is then lost for ever."
    return what + "? They can be rebuilt from the changelog."


def _delete_local(target: Target) -> list[dict[str, Any]]:
    if not target.state_dir.is_dir():
        return []
    deleted = []
    directory = held_directory(target)
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


def _print(document: dict[str, Any]) -> None:
    for row in document["partitions"]:
        print(f"partition {row['partition']}: {bytes_text(row['bytes'])} deleted from {document['state_dir']}")
    if not document["partitions"]:
        print(f"there was no local store in {document['state_dir']}")
    if document["values_deleted"] is not None:
        print(f"{document['values_deleted']:,} values deleted from the changelog")
    for topic in document["topics"]:
        print(f"topic {topic} deleted")
