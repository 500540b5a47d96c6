"""``changelog-state status``: who owns what, and how far it is."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from changelog_state.cli.options import (
    Application,
    BootstrapServers,
    Config,
    Json,
    StateDir,
    Store,
    opened_service,
    print_json,
)

__all__ = ["status"]


def status(
    application: Application = None,
    store: Store = None,
    bootstrap_servers: BootstrapServers = None,
    state_dir: StateDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show partitions and agents."""
    with opened_service(application, store, bootstrap_servers, state_dir, config) as service:
        found = service.status()
    if as_json:
        print_json(found)
        return
    console = Console()
    table = Table("partition", "phase", "owner", "last batch", "position", "end", "lag")
    for row in found["partitions"]:
        cells = (row["partition"], row["phase"], row["owner"], row["last_batch"], row["position"])
        table.add_row(*(_cell(value) for value in (*cells, row["end_offset"], row["lag_records"])))
    console.print(table)
    for agent in found["agents"]:
        console.print(f"agent {agent['id']} (pid {agent['pid']}) in {agent['state_dir']}", soft_wrap=True)
    if not found["agents"]:
        console.print("no agent is running here")


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
