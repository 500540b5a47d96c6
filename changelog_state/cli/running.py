"""How a command line starts and ends: logs and errors on standard error, the exit code."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from changelog_state.agent.launcher import WRONG_USE
from changelog_state.errors import ChangelogStateError, ConfigurationError

__all__ = ["DIFFERENCE", "FAILED", "exit_code_of", "run_app", "signals_as_ctrl_c"]

FAILED = 1
DIFFERENCE = 3
"""Verification found a difference."""


def run_app(app: typer.Typer, name: str) -> None:
    """Exit codes: 0 done, 1 failed, 2 wrong use, 3 verification found a difference."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        app()
    except ChangelogStateError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(exit_code_of(error))


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """SIGTERM takes the same way as Ctrl-C, so that it leaves nothing behind either."""
    previous = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def exit_code_of(error: ChangelogStateError) -> int:
    return WRONG_USE if isinstance(error, ConfigurationError) else FAILED
