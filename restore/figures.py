"""How far a restore is, in numbers: what bars, lines, listeners, status and ``--json`` all show. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

__all__ = ["Progress", "RestoreFigures", "total_of"]


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


def total_of(figures: Iterable[RestoreFigures], seconds: float) -> RestoreFigures:
    """All partitions as one; partitions run side by side, so the time is that of the whole."""
    found = list(figures)
    return RestoreFigures(
        partition=-1,
        phase="",
        need="",
        start=sum(each.start for each in found),
        position=sum(min(each.position, each.end) for each in found),
        end=sum(each.end for each in found),
        records=sum(each.records for each in found),
        bytes=sum(each.bytes for each in found),
        seconds=seconds,
    )
