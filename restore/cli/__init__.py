"""``changelog-restore``: one file per command."""

from __future__ import annotations

import typer

from changelog_state.cli.running import run_app
from changelog_state.light_start import without_pandas
from restore.cli.clear import clear
from restore.cli.inspect import inspect
from restore.cli.plan import plan
from restore.cli.run import run
from restore.cli.status import status
from restore.cli.verify import verify

__all__ = ["app", "main"]

app = typer.Typer(
    name="changelog-restore",
    help="Bring keyed state back from its changelog, look at it, and prove that it is right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (plan, run, status, verify, inspect, clear):
    app.command()(command)


def main() -> None:
    without_pandas()
    run_app(app, "changelog-restore")
