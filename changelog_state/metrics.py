"""What batches did, as their tasks have told: of the last one, and of all together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from changelog_state.changelog.record import BatchRecord
from restore.coordinator import Ticket

__all__ = ["BatchSummary", "Metrics"]

_COUNTED = ("rows", "late_rows", "timers", "rewritten", "expired", "changes", "outputs")


@dataclass(frozen=True)
class BatchSummary:
    """One batch. Times are in milliseconds since 1970."""

    query: str
    batch: int
    batch_time_ms: int
    watermark_ms: int | None
    """Before the batch: by it rows were late and timers due."""
    next_watermark_ms: int | None
    rows: int
    late_rows: int
    timers: int
    """That were called."""
    rewritten: int
    """Values of earlier generations that were written anew, all of them in one batch."""
    expired: int
    """Values that were removed because their time was over."""
    changes: int
    """Records of state that were written or deleted."""
    outputs: int
    """Records for the output topic."""

    @classmethod
    def of(cls, record: BatchRecord, tickets: Iterable[Ticket]) -> BatchSummary:
        told: list[dict[str, Any]] = [
            {**ticket.counts, "changes": ticket.records, "outputs": ticket.outputs} for ticket in tickets
        ]
        return cls(
            query=record.query,
            batch=record.batch,
            batch_time_ms=record.batch_time_ms,
            watermark_ms=record.watermark_before_ms,
            next_watermark_ms=record.watermark_after_ms,
            **{name: sum(each[name] for each in told) for name in _COUNTED},
        )


class Metrics:
    def __init__(self) -> None:
        self.last: BatchSummary | None = None
        self._totals = dict.fromkeys(("batches", *_COUNTED), 0)

    def note(self, batch: BatchSummary) -> None:
        self.last = batch
        self._totals["batches"] += 1
        for name in _COUNTED:
            self._totals[name] += getattr(batch, name)

    def totals(self) -> dict[str, int]:
        return dict(self._totals)
