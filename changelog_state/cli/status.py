"""``changelog-state status``: who owns what, and how far it is."""

from __future__ import annotations

from typing import Any

from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import print_json, print_table

__all__ = ["status"]

_COLUMNS = {
    "partition": "partition",
    "phase": "phase",
    "owner": "owner",
    "last_batch": "last batch",
    "position": "position",
    "end_offset": "end",
    "lag_records": "lag",
}


@with_common_options
def status(common: Common) -> None:
    """Show partitions, agents and global tables."""
    target = common.target()
    with target.service() as service:
        found = service.status()
    found["partitions"] = [row for row in found["partitions"] if row["partition"] in target.partitions]
    if common.as_json:
        print_json(found)
        return
    print_table(
        [*_COLUMNS.values(), "replicas"],
        ([*(row[name] for name in _COLUMNS), _replicas(row)] for row in found["partitions"]),
    )
    for agent in found["agents"]:
        draining = ", draining" if agent["draining"] else ""
        print(f"agent {agent['id']} at {agent['address']} (pid {agent['pid']}{draining}) in {agent['state_dir']}")
    if not found["agents"]:
        print("no agent answers")
    for table in found["tables"]:
        _print_table_line(table)
    for row in found["partitions"]:
        for replica in row["replicas"]:
            if replica["warning"]:
                print(f"partition {row['partition']}: the replica at {replica['agent']} {replica['warning']}")


def _replicas(row: dict[str, Any]) -> str | None:
    """Each with what it is missing."""
    found = []
    for replica in row["replicas"]:
        lag = "catching up" if replica["lag_records"] is None else f"lag {replica['lag_records']:,}"
        found.append(f"{replica['agent']} ({lag})")
    return ", ".join(found) or None


def _print_table_line(table: dict[str, Any]) -> None:
    """Where a global table is followed, and how near to its topic's end; then what is wrong, if anything is."""
    at = [f"{one['agent']} ({_table_lag(one)})" for one in table["agents"]]
    print(f"global table {table['table']} (topic {table['topic']}): {', '.join(at) or 'no agent follows it'}")
    for one in table["agents"]:
        if one["warning"]:
            print(f"global table {table['table']} at agent {one['agent']} {one['warning']}")


def _table_lag(one: dict[str, Any]) -> str:
    if one["lag_seconds"] is None:
        return "catching up" if one["lag_records"] is None else f"catching up, {one['lag_records']:,} to go"
    return f"lag {one['lag_records']:,} records, {one['lag_seconds']:.1f} s"
