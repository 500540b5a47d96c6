"""How much there is to replay, without reading it all.

Compaction and transaction markers leave gaps, so offsets say little about records. A few small samples, spread over
the log, tell how dense it is where. A short log is counted instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from changelog_state.changelog.reader import ChangelogReader

__all__ = [
    "BYTES_PER_SECOND",
    "RECORDS_PER_SECOND",
    "SAMPLE_RECORDS",
    "Estimate",
    "Sample",
    "extrapolate",
    "sample_log",
    "stretches",
]

RECORDS_PER_SECOND = 400_000
BYTES_PER_SECOND = 60_000_000
"""What a small machine surely does; what it really does shows when it runs."""
_SAMPLES = 8
SAMPLE_RECORDS = 250


@dataclass(frozen=True)
class Sample:
    """The first records of a stretch of the log."""

    offsets: int
    """The stretch."""
    covered: int
    """How much of it the records span: all of it, if there were no more."""
    records: int
    bytes: int


@dataclass(frozen=True)
class Estimate:
    records: int
    bytes: int
    exact: bool
    """Everything was counted."""

    @property
    def seconds(self) -> float:
        """At the assumed rate, whichever limit is reached first."""
        return max(self.records / RECORDS_PER_SECOND, self.bytes / BYTES_PER_SECOND)


def extrapolate(samples: Iterable[Sample]) -> Estimate:
    """Each sample stands for its stretch."""
    records = byte_count = 0.0
    exact = True
    for sample in samples:
        exact = exact and sample.covered >= sample.offsets
        factor = sample.offsets / max(1, sample.covered)
        records += sample.records * factor
        byte_count += sample.bytes * factor
    return Estimate(round(records), round(byte_count), exact)


def stretches(start: int, end: int) -> list[tuple[int, int]]:
    """The log in equal parts, one sample each; so few that a short log is read whole."""
    offsets = max(0, end - start)
    parts = min(_SAMPLES, -(-offsets // SAMPLE_RECORDS))
    bounds = [start + offsets * number // max(1, parts) for number in range(parts + 1)]
    return list(pairwise(bounds))


def sample_log(reader: ChangelogReader, start: int, end: int) -> Iterator[Sample]:
    for lower, upper in stretches(start, end):
        yield _sample(reader, lower, upper)


def _sample(reader: ChangelogReader, lower: int, upper: int) -> Sample:
    records = byte_count = 0
    reader.seek(lower)
    while reader.position() < upper:
        for message in reader.read(SAMPLE_RECORDS):
            if message.offset() >= upper:
                return Sample(upper - lower, upper - lower, records, byte_count)
            records += 1
            byte_count += len(message.key()) + len(message.value() or b"")
            if records == SAMPLE_RECORDS:
                return Sample(upper - lower, message.offset() + 1 - lower, records, byte_count)
        reader.check_progress()
    return Sample(upper - lower, upper - lower, records, byte_count)
