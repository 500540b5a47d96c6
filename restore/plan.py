"""Whether a local store can go on from where it stands. Pure: positions in, decision out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from changelog_state.config import FORMAT_VERSION
from changelog_state.errors import ChangelogMismatchError
from changelog_state.store.meta import StoreMeta

__all__ = ["LogBounds", "Need", "PartitionPlan", "plan_partition"]


class Need(StrEnum):
    EVERYTHING = "no local store"
    OTHER_TOPIC = "the changelog was recreated"
    OUTSIDE_LOG = "the local position is outside the log"
    STALE = "the local store may have missed deletions"
    CORRUPT = "the local store is damaged"
    FOREIGN = "its marker is not in this log"
    BEHIND = "behind"
    NOTHING = "up to date"

    @property
    def from_scratch(self) -> bool:
        return self not in (Need.BEHIND, Need.NOTHING)

    @property
    def word(self) -> str:
        """The reason in a word or two, for tables and programs."""
        return _WORDS.get(self, str(self))


_WORDS = {
    Need.OTHER_TOPIC: "recreated changelog",
    Need.OUTSIDE_LOG: "outside log",
    Need.STALE: "stale",
    Need.CORRUPT: "corrupt",
    Need.FOREIGN: "foreign marker",
}


@dataclass(frozen=True)
class LogBounds:
    topic_id: str
    low: int
    high: int
    delete_retention_ms: int


@dataclass(frozen=True)
class PartitionPlan:
    need: Need
    start: int
    """Where the replay begins."""
    end: int

    @property
    def offsets(self) -> int:
        """An upper bound of the records to read: compaction and transaction markers leave gaps."""
        return max(0, self.end - self.start)


def plan_partition(
    meta: StoreMeta | None, log: LogBounds, now_ms: int, *, damaged: bool = False, foreign: bool = False
) -> PartitionPlan:
    """
    1. No store, a damaged one, or one of another topic or with a foreign marker, says nothing about this log.
    2. A position outside the log cannot be gone on from.
    3. Deletions stay readable for ``delete.retention.ms`` only; half of it is the margin for clocks and for
       the time that the replay itself takes.
    """
    if damaged:
        return PartitionPlan(Need.CORRUPT, log.low, log.high)
    if meta is None:
        return PartitionPlan(Need.EVERYTHING, log.low, log.high)
    if meta.format > FORMAT_VERSION:
        raise ChangelogMismatchError(
            f"local store has format {meta.format}, this library knows up to {FORMAT_VERSION}; upgrade it here"
        )
    if meta.topic_id != log.topic_id:
        return PartitionPlan(Need.OTHER_TOPIC, log.low, log.high)
    if not log.low <= meta.position <= log.high:
        return PartitionPlan(Need.OUTSIDE_LOG, log.low, log.high)
    if now_ms - meta.caught_up_ms > log.delete_retention_ms // 2 and meta.position < log.high:
        return PartitionPlan(Need.STALE, log.low, log.high)
    if foreign:
        return PartitionPlan(Need.FOREIGN, log.low, log.high)
    need = Need.BEHIND if meta.position < log.high else Need.NOTHING
    return PartitionPlan(need, meta.position, log.high)
