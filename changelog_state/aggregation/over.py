"""What a call of ``aggregate`` is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from changelog_state.aggregation.closing import Closing
from changelog_state.aggregation.functions.base import Aggregate
from changelog_state.calls import Lateness
from changelog_state.windows import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Over", "Sessions"]


@dataclass(frozen=True)
class Sessions:
    """How rows become sessions, and when these give their results."""

    kind: Session
    emit: Literal["update", "close"]


@dataclass(frozen=True)
class Over:
    """What is aggregated, by what, and in which windows."""

    df: DataFrame
    key: str | Sequence[str]
    aggregates: Mapping[str, Aggregate]
    lateness: Lateness
    windows: Closing | Sessions | None = None
    hidden: tuple[str, ...] = ()
    """Aggregates of ours among the others: kept like them, and no output."""
