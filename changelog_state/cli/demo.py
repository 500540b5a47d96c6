"""``changelog-state demo``: a stream, three kills, and a verdict."""

from __future__ import annotations


def demo() -> None:
    """Watch a Spark stream keep its state right through crashes."""
