"""Columns that Spark hands to the tasks of ``aggregate``, beside those of the key."""

from __future__ import annotations

__all__ = ["FIRST", "LAST", "LAST_WINDOW", "LATE", "ROWS", "TIMED", "WINDOW_START", "partial_name"]

ROWS = "__changelog_state_rows"
"""How many rows became this one."""
LATE = "__changelog_state_late"
"""How many of these were late."""
TIMED = "__changelog_state_timed"
"""How many of these have an event time. The latest one is in a column called as the user's."""
FIRST, LAST = "window_first_ms", "window_last_ms"
"""Of sessions: aggregates of ours, the times of the first row and the last one in milliseconds since 1970."""

# Beside the user's, in Spark only:
WINDOW_START = "__changelog_state_window"
"""The column of the key that a window of a fixed size adds: when it begins, in milliseconds since 1970."""
LAST_WINDOW = "__changelog_state_last_window"
"""Whether a row is there for the last one of its windows: so it is counted once."""


def partial_name(number: int) -> str:
    return f"__changelog_state_partial_{number}"
