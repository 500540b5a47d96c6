"""``changelog-state``: one file per command."""

from __future__ import annotations

import logging
import sys

import typer

from changelog_state.agent.launcher import WRONG_USE
from changelog_state.cli.agent import agent
from changelog_state.cli.broker import broker
from changelog_state.cli.clear import clear
from changelog_state.cli.demo import demo
from changelog_state.cli.get import get
from changelog_state.cli.scan import scan
from changelog_state.cli.status import status
from changelog_state.errors import ChangelogStateError, ConfigurationError

__all__ = ["app", "main"]

app = typer.Typer(
    name="changelog-state",
    help="Keyed state for Spark foreachBatch, on a compacted Kafka changelog.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, broker, agent, status, get, scan, clear):
    app.command()(command)


def main() -> None:
    """Exit codes: 0 done, 1 failed, 2 wrong use."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        app()
    except ConfigurationError as error:
        sys.exit(_fail(error, WRONG_USE))
    except ChangelogStateError as error:
        sys.exit(_fail(error, 1))


def _fail(error: ChangelogStateError, code: int) -> int:
    print(f"changelog-state: {error}", file=sys.stderr)
    return code
