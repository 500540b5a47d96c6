"""``changelog-restore``: one file per command."""

from __future__ import annotations

import typer

from changelog_state.cli.running import run_app
from restore.cli.plan import plan

__all__ = ["app", "main"]

app = typer.Typer(
    name="changelog-restore",
    help="Bring keyed state back from its changelog, look at it, and prove that it is right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (plan,):
    app.command()(command)


def main() -> None:
    run_app(app, "changelog-restore")
