"""``changelog-state scan``: keys in order."""

from __future__ import annotations

from typing import Annotated

import typer

from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import print_json
from changelog_state.cli.target import parse_key

__all__ = ["scan"]


@with_common_options
def scan(
    common: Common,
    prefix: Annotated[str | None, typer.Option(help="Only keys that start with this.")] = None,
    start: Annotated[str | None, typer.Option(help="From this key on.")] = None,
    end: Annotated[str | None, typer.Option(help="Up to, not including, this key.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many keys.")] = 100,
) -> None:
    """List keys and their state, in order of the keys."""
    target = common.target()
    with target.service() as service:
        types = service.key_types()
        lower, first, last = (None if text is None else parse_key(text, types) for text in (prefix, start, end))
        found = list(service.scan(lower, first, last, limit, partitions=target.partitions))
    if common.as_json:
        print_json([{"key": key, "values": values} for key, values in found])
        return
    for key, values in found:
        print(f"{key!r}: " + ", ".join(f"{name} = {value!r}" for name, value in values.items()))
