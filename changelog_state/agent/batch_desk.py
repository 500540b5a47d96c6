"""The batch that is open on a partition, and what its tasks have handed in. Used under the partition's lock."""

from __future__ import annotations

from dataclasses import dataclass

from changelog_state.agent.staging import StagedWork, StagingBudget

__all__ = ["BatchDesk", "OpenBatch"]


@dataclass(frozen=True)
class OpenBatch:
    """What the driver's gate announced: only requests with this token are served."""

    query: str
    batch: int
    epoch: int
    token: str
    driver: str
    """The driver's id (see ``drivers.py``)."""


class BatchDesk:
    def __init__(self, budget: StagingBudget) -> None:
        self._budget = budget
        self._staged: dict[str, StagedWork] = {}
        self.batch: OpenBatch | None = None
        self.running = False

    def open(self, batch: OpenBatch) -> None:
        """Whatever was there of an earlier one is gone."""
        self.clear()
        self.batch, self.running = batch, True

    def close(self, token: str) -> None:
        if self.batch is not None and self.batch.token == token:
            self.running = False
            self.drop_staged()

    def clear(self) -> None:
        self.batch, self.running = None, False
        self.drop_staged()

    def begin_stage(self) -> StagedWork:
        return StagedWork(self._budget)

    def keep(self, work: StagedWork) -> None:
        """Sealed work, until COMMIT, or until its batch is gone."""
        self._staged[work.stage_id] = work

    def staged(self, stage_id: str) -> StagedWork | None:
        return self._staged.get(stage_id)

    def drop_staged(self) -> None:
        for work in self._staged.values():
            work.discard()
        self._staged.clear()
