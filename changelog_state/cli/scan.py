"""``changelog-state scan``: keys in order."""

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

__all__ = ["scan"]


def scan(
    prefix: Annotated[str | None, typer.Option(help="Only keys that start with this.")] = None,
    start: Annotated[str | None, typer.Option(help="From this key on.")] = None,
    end: Annotated[str | None, typer.Option(help="Up to, not including, this key.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many keys.")] = 100,
    application: Application = None,
    store: Store = None,
    bootstrap_servers: BootstrapServers = None,
    state_dir: StateDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List keys and their state, in order of the keys."""
    with opened_service(application, store, bootstrap_servers, state_dir, config) as service:
        lower, first, last = (None if text is None else parse_key(text, service) for text in (prefix, start, end))
        found = list(service.scan(prefix=lower, start=first, end=last, limit=limit))
    if as_json:
        print_json([{"key": key, "values": values} for key, values in found])
        return
    for key, values in found:
        print(f"{key!r}: " + ", ".join(f"{name} = {value!r}" for name, value in values.items()))
