"""Columns that Spark hands to the tasks of ``aggregate``, beside those of the key."""

from __future__ import annotations

__all__ = ["FIRST", "LAST", "LATE", "ROWS", "TIMED", "partial_name"]

ROWS = "__changelog_state_rows"
"""How many rows became this one."""
LATE = "__changelog_state_late"
"""How many of these were late."""
TIMED = "__changelog_state_timed"
"""How many of these have an event time. The latest one is in a column called as the user's."""
FIRST, LAST = "window_first_ms", "window_last_ms"
"""Of sessions: aggregates of ours, the times of the first row and the last one in milliseconds since 1970."""


def partial_name(number: int) -> str:
    return f"__changelog_state_partial_{number}"
