"""Stretches of activity: what a session is made of, be it a function's or one of aggregates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Stretch", "together"]

_Session = TypeVar("_Session")
_Row = TypeVar("_Row")


@dataclass
class Stretch(Generic[_Session, _Row]):
    """What is less than a gap apart: rows that have come, and sessions that were there."""

    first_ms: int
    last_ms: int
    sessions: list[_Session] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)


_Part = TypeVar("_Part", bound=Stretch)  # type: ignore[type-arg]


def together(parts: Iterable[_Part], gap_ms: int) -> list[_Part]:
    """What is less than a gap apart as one, in order of time; rows of one moment stay in their order."""
    found: list[_Part] = []
    for part in sorted(parts, key=lambda part: part.first_ms):
        if found and part.first_ms - found[-1].last_ms < gap_ms:
            found[-1].last_ms = max(found[-1].last_ms, part.last_ms)
            found[-1].sessions += part.sessions
            found[-1].rows += part.rows
        else:
            found.append(part)
    return found
