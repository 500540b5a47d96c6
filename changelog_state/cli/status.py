"""``changelog-state status``: who owns what, and how far it is."""

from __future__ import annotations

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
    """Show partitions and agents."""
    target = common.target()
    with target.service() as service:
        found = service.status()
    found["partitions"] = [row for row in found["partitions"] if row["partition"] in target.partitions]
    if common.as_json:
        print_json(found)
        return
    print_table(_COLUMNS.values(), ([row[name] for name in _COLUMNS] for row in found["partitions"]))
    for agent in found["agents"]:
        print(f"agent {agent['id']} (pid {agent['pid']}) in {agent['state_dir']}")
    if not found["agents"]:
        print("no agent is running here")
