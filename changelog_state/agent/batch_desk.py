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
    asked: int = 0
    """Later ones of the same driver have a higher number, by which one that was overtaken is known."""


class BatchDesk:
    def __init__(self, budget: StagingBudget) -> None:
        self._budget = budget
        self._staged: dict[str, StagedWork] = {}
        self._newest = (0, 0)
        self.batch: OpenBatch | None = None
        self.running = False

    def open(self, batch: OpenBatch) -> None:
        """Whatever was there of an earlier one is gone.

        A request that the driver has given up waiting for may be served late: it changes nothing then.
        """
        if (batch.epoch, batch.asked) < self._newest:
            return
        self._newest = batch.epoch, batch.asked
        if self.batch is None or self.batch.token != batch.token:
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
