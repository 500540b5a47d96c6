"""``changelog-state get KEY [NAME]``: one key's state."""

from __future__ import annotations

from typing import Annotated

import typer

from changelog_state.cli.options import (
    Application,
    BootstrapServers,
    Config,
    Json,
    StateDir,
    Store,
    opened_service,
    parse_key,
    print_json,
)

__all__ = ["get"]


def get(
    key: Annotated[str, typer.Argument(help="Text; JSON for numbers and several columns; hex for binary.")],
    name: Annotated[str | None, typer.Argument(help="One name; without it all of them.")] = None,
    application: Application = None,
    store: Store = None,
    bootstrap_servers: BootstrapServers = None,
    state_dir: StateDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the state of one key. Exit code 1 if there is none."""
    with opened_service(application, store, bootstrap_servers, state_dir, config) as service:
        parsed = parse_key(key, service)
        found = service.get_all(parsed)
    if name is not None:
        found = {name: found[name]} if name in found else {}
    if as_json:
        print_json({"key": parsed, "values": found})
    else:
        for found_name, value in found.items():
            print(f"{found_name} = {value!r}")
    if not found:
        if not as_json:
            typer.echo(f"no state for key {key!r}", err=True)
        raise typer.Exit(1)
