"""``changelog-restore status``: the stores of this node, and what their agent says."""

from __future__ import annotations

from typing import Any

from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import bytes_text, print_json, print_table
from restore.cli.store import agent_view, changelog_of
from restore.plan import Need
from restore.progress import RestoreFigures
from restore.survey import PartitionSurvey, survey

__all__ = ["status"]

_COLUMNS = (
    "partition",
    "phase",
    "on disk",
    "disk position",
    "position",
    "end",
    "lag",
    "last batch",
    "size",
    "restore",
)


@with_common_options
def status(common: Common) -> None:
    """Show the local stores of this node and, if an agent is running here, its own view. Starts and changes nothing.

    "on disk" says what a restart would find; an agent that is running may hold more in memory.

    With --json: application, store, state_dir, agent (id, pid, address … or null); partitions, each with partition,
    phase (the agent's; "CLOSED" without one), why (as in plan), local_position (on disk), position (the agent's, else
    the one on disk), end_offset, lag_records, last_batch, query, bytes (on disk), restore (figures while a partition
    is being restored, else null), error (class and message, or null), damage (of the store on disk, or null).
    """
    target = common.target()
    topic, _ = changelog_of(target)
    agent, statuses = agent_view(target)
    found = survey(target.config, topic, target.partitions, target.path)
    document: dict[str, Any] = {
        "application": target.application,
        "store": target.store,
        "state_dir": str(target.state_dir),
        "agent": agent,
        "partitions": [_row(one, statuses.get(one.partition)) for one in found],
    }
    if common.as_json:
        print_json(document)
        return
    print_table(_COLUMNS, (_cells(row) for row in document["partitions"]))
    for row in document["partitions"]:
        for problem in (row["damage"], row["error"] and row["error"]["message"]):
            if problem:
                print(f"partition {row['partition']}: {problem}")
    if agent is None:
        print(f"no agent is running in {target.state_dir}")
    else:
        print(f"agent {agent['id']} (pid {agent['pid']}) is running in {agent['state_dir']}")


def _row(one: PartitionSurvey, held: dict[str, Any] | None) -> dict[str, Any]:
    """What the agent has wins over what is on disk, which is older."""
    marker = one.local.marker
    local_position = one.local.meta.position if one.local.meta is not None else None
    row: dict[str, Any] = {
        "partition": one.partition,
        "phase": "CLOSED",
        "why": one.plan.need.word,
        "local_position": local_position,
        "position": local_position,
        "end_offset": one.log.high,
        "lag_records": _lag(one),
        "last_batch": marker.batch if marker is not None else None,
        "query": marker.query if marker is not None else None,
        "bytes": one.local.bytes,
        "restore": None,
        "error": None,
        "damage": one.local.damage,
    }
    if held is None:
        return row
    row |= {"phase": held["phase"], "error": held["error"]}
    if held["position"] is not None:
        row["position"] = held["position"]
        row["lag_records"] = 0 if held["phase"] == "ACTIVE" else max(0, one.log.high - held["position"])
    if held["follower"] is not None:
        row |= {name: held["follower"][name] for name in ("position", "lag_records")}
    if held["marker"] is not None:
        row |= {"last_batch": held["last_batch"], "query": held["marker"]["query"]}
    if held["phase"] == "RESTORING" and held["restore"] is not None:
        row["restore"] = RestoreFigures.of(one.partition, held["phase"], held["restore"]).to_json()
    return row


def _lag(one: PartitionSurvey) -> int:
    """Records still to be read; offsets where the store on disk has to be replaced anyway."""
    if one.plan.need in (Need.BEHIND, Need.NOTHING):
        return one.estimate.records
    return one.plan.offsets


def _cells(row: dict[str, Any]) -> list[object]:
    restore = row["restore"]
    return [
        *(row[name] for name in ("partition", "phase", "why", "local_position", "position", "end_offset")),
        row["lag_records"],
        row["last_batch"],
        bytes_text(row["bytes"]),
        f"{restore['fraction']:.0%}" if restore else None,
    ]
