"""``changelog-state clear``: delete all state of a store."""

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
    print_json,
)

__all__ = ["clear"]


def clear(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    application: Application = None,
    store: Store = None,
    bootstrap_servers: BootstrapServers = None,
    state_dir: StateDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Delete all state of a store, here and in its changelog. Refused while a batch is running."""
    with opened_service(application, store, bootstrap_servers, state_dir, config) as service:
        if not yes:
            typer.confirm(f"Delete all state of {service!r}?", abort=True, err=True)
        cleared = service.clear()
    if as_json:
        print_json({"cleared": cleared})
    else:
        print(f"{cleared} values deleted")
