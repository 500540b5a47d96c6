"""What was measured: a table for the reader, and one more entry each in results.json."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["RESULTS_FILE", "Report", "Result"]

RESULTS_FILE = Path(__file__).parent / "out" / "results.json"


@dataclass(frozen=True)
class Result:
    system: str
    value: float
    unit: str
    params: Mapping[str, Any]
    shown: Mapping[str, str] = field(default_factory=dict)
    """Further columns of the table."""


class Report:
    """The results of one benchmark in one run. ``params.run`` tells which ones were measured together."""

    def __init__(self, bench: str, *, quick: bool, console: Console) -> None:
        self._bench = bench
        self._console = console
        self._results: list[Result] = []
        self._notes: list[str] = []
        self._common = {
            "run": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": quick,
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "commit": _commit(),
        }
        console.rule(f"{bench}{' (quick)' if quick else ''}")

    def add(self, result: Result) -> None:
        self._results.append(result)
        self.say(f"{result.system} {_named(result)}: {_number(result.value)} {result.unit}")

    def say(self, text: str) -> None:
        """Progress, while it is being made."""
        self._console.print(f"[dim]{datetime.now():%H:%M:%S}[/dim] {text}", highlight=False)

    def note(self, text: str) -> None:
        """A line below the table."""
        self._notes.append(text)

    def finish(self) -> None:
        """Print the table and add the results to the file."""
        if not self._results:
            return
        shown = list(dict.fromkeys(name for result in self._results for name in result.shown))
        table = Table(title=self._bench, title_justify="left")
        table.add_column("system")
        table.add_column("variant")
        table.add_column(self._results[0].unit, justify="right")
        for name in shown:
            table.add_column(name, justify="right")
        for result in self._results:
            extra = [result.shown.get(name, "") for name in shown]
            table.add_row(result.system, _named(result), _number(result.value), *extra)
        self._console.print(table)
        for note in self._notes:
            self._console.print(note, highlight=False)
        _append(
            [
                {
                    "bench": self._bench,
                    "system": result.system,
                    "value": round(result.value, 3),
                    "unit": result.unit,
                    "params": {**result.params, **self._common},
                }
                for result in self._results
            ]
        )
        self._console.print(f"[dim]added to {RESULTS_FILE}[/dim]")


def _named(result: Result) -> str:
    return str(result.params.get("variant", ""))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def _append(entries: list[dict[str, Any]]) -> None:
    RESULTS_FILE.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(RESULTS_FILE.read_text()) if RESULTS_FILE.exists() else []
    partial = RESULTS_FILE.with_suffix(".partial")
    partial.write_text(json.dumps(earlier + entries, indent=1) + "\n")
    partial.rename(RESULTS_FILE)


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
