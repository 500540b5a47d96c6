"""``changelog-state get KEY [NAME]``: one key's state."""

from __future__ import annotations

from typing import Annotated

import typer

from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import print_json
from changelog_state.cli.target import parse_key

__all__ = ["get"]


@with_common_options(without=("partitions",))
def get(
    common: Common,
    key: Annotated[str, typer.Argument(help="Text; JSON for numbers and several columns; hex for binary.")],
    name: Annotated[str | None, typer.Argument(help="One name; without it all of them.")] = None,
) -> None:
    """Show the state of one key. Exit code 1 if there is none."""
    with common.target().service() as service:
        parsed = parse_key(key, service.key_types())
        found = service.get_all(parsed)
    if name is not None:
        found = {name: found[name]} if name in found else {}
    if common.as_json:
        print_json({"key": parsed, "values": found})
    else:
        for found_name, value in found.items():
            print(f"{found_name} = {value!r}")
    if not found:
        if not common.as_json:
            typer.echo(f"no state for key {key!r}", err=True)
        raise typer.Exit(1)
