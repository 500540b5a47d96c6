"""``changelog-state clear``: delete all state of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import print_json
from changelog_state.errors import ConfigurationError

__all__ = ["clear"]


@with_common_options
def clear(common: Common, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Delete all state of a store, here and in its changelog. Refused while a batch is running."""
    target = common.target()
    if not target.all_partitions:
        raise ConfigurationError(
            f"partitions {target.partitions} of {target.name} are chosen, but clear empties a whole store; "
            "leave partitions out"
        )
    with target.service() as service:
        if not yes:
            typer.confirm(f"Delete all state of {service!r}?", abort=True, err=True)
        cleared = service.clear()
    if common.as_json:
        print_json({"cleared": cleared})
    else:
        print(f"{cleared} values deleted")
