"""``changelog-state``: one file per command."""

from __future__ import annotations

import typer

from changelog_state.cli.agent import agent
from changelog_state.cli.broker import broker
from changelog_state.cli.clear import clear
from changelog_state.cli.demo import demo
from changelog_state.cli.get import get
from changelog_state.cli.running import run_app
from changelog_state.cli.scan import scan
from changelog_state.cli.status import status

__all__ = ["app", "main"]

app = typer.Typer(
    name="changelog-state",
    help="Keyed state for Spark foreachBatch, on a compacted Kafka changelog.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, broker, status, get, scan, clear):
    app.command()(command)
app.add_typer(agent, name="agent")


def main() -> None:
    run_app(app, "changelog-state")
