"""How far a restore is, in numbers: what bars, lines, listeners, status and ``--json`` all show. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

__all__ = ["Progress", "RestoreFigures", "RestoreTotal"]


class Progress(Protocol):
    """What the replay engine reports."""

    @property
    def start(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def need(self) -> str: ...


@dataclass(frozen=True)
class RestoreFigures:
    """One partition's restore: offsets [start, end), of which those below ``position`` are done.

    Progress is measured in offsets, which are known. Records and bytes still to do are estimates, as compaction and
    transaction markers leave gaps between offsets.
    """

    partition: int
    phase: str
    need: str
    """Why it is restored, for people."""
    start: int
    position: int
    end: int
    records: int
    bytes: int
    seconds: float
    """Since it began."""

    @classmethod
    def of(cls, partition: int, phase: str, progress: Progress | Mapping[str, Any]) -> RestoreFigures:
        found = progress if isinstance(progress, Mapping) else vars(progress)
        fields = ("need", "start", "position", "end", "records", "bytes", "seconds")
        return cls(partition, phase, **{name: found[name] for name in fields})

    @property
    def fraction(self) -> float:
        """From 0.0 to exactly 1.0; 1.0 also if there is nothing to do."""
        return 1.0 if self._left <= 0 else max(0, self._done) / (self.end - self.start)

    @property
    def begun(self) -> bool:
        return self._done > 0

    @property
    def finished(self) -> bool:
        return self._left <= 0

    @property
    def records_to_do(self) -> int:
        """An estimate, from the records per offset so far; 0 at the end."""
        if self._done <= 0:
            return max(0, self._left)
        return min(max(0, self._left), round(self.records * self._left / self._done))

    @property
    def bytes_to_do(self) -> int:
        """An estimate, from the bytes per offset so far; 0 at the end, and before anything has been read."""
        return max(0, round(self.bytes * self._left / self._done)) if self._done > 0 else 0

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_seconds(self) -> float | None:
        """None while unknown, 0.0 at the end."""
        if self._left <= 0:
            return 0.0
        return self.seconds * self._left / self._done if self._done > 0 and self.seconds > 0 else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "fraction": self.fraction,
            "records_to_do": self.records_to_do,
            "bytes_to_do": self.bytes_to_do,
            "records_per_second": self.records_per_second,
            "eta_seconds": self.eta_seconds,
        }

    @property
    def _done(self) -> int:
        return self.position - self.start

    @property
    def _left(self) -> int:
        return self.end - self.position


@dataclass(frozen=True)
class RestoreTotal:
    """All partitions as one. They run side by side, so the time is that of the whole."""

    figures: Sequence[RestoreFigures]
    seconds: float

    @property
    def records(self) -> int:
        return sum(each.records for each in self.figures)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.figures)

    @property
    def records_to_do(self) -> int:
        return sum(each.records_to_do for each in self.figures)

    @property
    def bytes_to_do(self) -> int:
        return sum(each.bytes_to_do for each in self.figures)

    @property
    def begun(self) -> bool:
        return any(each.begun for each in self.figures)

    @property
    def finished(self) -> bool:
        return all(each.finished for each in self.figures)

    @property
    def fraction(self) -> float:
        return 1.0 if self.finished else self._done / (self._done + self._left)

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_seconds(self) -> float | None:
        """By the pace of all together, and not before the slowest one is through."""
        if self.finished:
            return 0.0
        if self._done <= 0 or self.seconds <= 0:
            return None
        return max([self.seconds * self._left / self._done, *(each.eta_seconds or 0.0 for each in self.figures)])

    @property
    def _done(self) -> int:
        return sum(max(0, min(each.position, each.end) - each.start) for each in self.figures)

    @property
    def _left(self) -> int:
        return sum(max(0, each.end - each.position) for each in self.figures)
