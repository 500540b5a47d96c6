"""How commands answer: one JSON document, or tables for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from changelog_state.codec.plain import plain

__all__ = ["bytes_text", "cell", "print_json", "print_table", "seconds_text"]

_PIPED_WIDTH = 200
"""Into a file or another program a table is as wide as it needs to be."""


def print_json(document: Any) -> None:
    print(json.dumps(_with_text_keys(document), default=plain))


def _with_text_keys(value: Any) -> Any:
    """A map's keys may be numbers, bytes and tuples: as JSON they are text, of JSON themselves."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else json.dumps(key, default=plain): _with_text_keys(each)
            for key, each in value.items()
        }
    return [_with_text_keys(each) for each in value] if isinstance(value, (list, tuple)) else value


def print_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    table = Table(*columns)
    for row in rows:
        table.add_row(*map(cell, row))
    console().print(table)


def console() -> Console:
    found = Console(highlight=False, soft_wrap=True)
    return found if found.is_terminal else Console(highlight=False, soft_wrap=True, width=_PIPED_WIDTH)


def cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def bytes_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def seconds_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
