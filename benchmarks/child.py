"""Programs of their own that measure one thing: JSON in as the last argument, JSON out as the last line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["UnavailableError", "run_child"]

ROOT = Path(__file__).parents[1]
_TIMEOUT_SECONDS = 1800.0
_SHOWN_LINES = 20


class UnavailableError(Exception):
    """A peer cannot be set up on this machine; it is left out of the comparison."""


def run_child(command: Sequence[str], settings: Mapping[str, Any], *, killed: bool = False) -> dict[str, Any]:
    """Run it to its end and give what it found. ``killed``: it ends itself by SIGKILL, which is then right."""
    child = subprocess.run(
        [*command, json.dumps(settings)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_SECONDS,
        check=False,
    )
    if child.returncode != (-signal.SIGKILL if killed else 0):
        end = "\n".join((child.stdout + child.stderr).splitlines()[-_SHOWN_LINES:])
        raise RuntimeError(f"{' '.join(command[-2:])} ended with exit status {child.returncode}:\n{end}")
    found: dict[str, Any] = json.loads(child.stdout.strip().splitlines()[-1])
    return found
