"""State and outputs against totals that were computed without them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["OutputRow", "Total", "differing_keys", "differing_outputs"]


class Total(NamedTuple):
    """All that one user has bought."""

    cents: int
    purchases: int


@dataclass(frozen=True)
class OutputRow:
    """What the query wrote about one user in one batch."""

    batch: int
    user_id: str
    bought: int
    spent_cents: int
    total_cents: int


def differing_keys(expected: Mapping[str, Total], actual: Mapping[str, Total]) -> list[str]:
    """Keys whose totals differ, and keys that only one side has; in order."""
    return sorted(key for key in expected.keys() | actual.keys() if expected.get(key) != actual.get(key))


def differing_outputs(expected: Mapping[str, Total], rows: Iterable[OutputRow]) -> list[str]:
    """Users whose output rows are not the history of their total: each change there once, in order, and no other.

    A batch that was lost leaves the sum too small, one that was written twice makes it too large, and one that
    was computed on the wrong state breaks the chain of totals.
    """
    so_far: dict[str, Total] = {}
    broken: set[str] = set()
    seen: set[tuple[int, str]] = set()
    for row in sorted(rows, key=lambda row: row.batch):
        if (row.batch, row.user_id) in seen:
            broken.add(row.user_id)
        seen.add((row.batch, row.user_id))
        before = so_far.get(row.user_id, Total(0, 0))
        after = Total(before.cents + row.spent_cents, before.purchases + row.bought)
        if row.total_cents != after.cents:
            broken.add(row.user_id)
        so_far[row.user_id] = after
    return sorted(broken.union(differing_keys(expected, so_far)))
