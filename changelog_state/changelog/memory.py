"""One partition of a changelog in plain Python: transactions, offsets with gaps, fencing. For tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import Message

from changelog_state.changelog.outputs import Outputs
from changelog_state.changelog.writer import IndeterminateCommitError, Records
from changelog_state.codec.headers import Headers

__all__ = ["MemoryChangelog", "MemoryWriter"]


@dataclass
class MemoryChangelog:
    """Committed records. After each transaction one offset is left out, as Kafka's own markers take one."""

    records: list[Message] = field(default_factory=list)
    next_offset: int = 0
    outputs: list[tuple[str, bytes | None, bytes | None, Headers | None]] = field(default_factory=list)
    """Records for topics: topic, key, value, headers."""
    _writers: int = 0

    def writer(self) -> MemoryWriter:
        """Earlier ones are fenced from now on."""
        self._writers += 1
        return MemoryWriter(self, self._writers)

    def read(self, start: int = 0, end: int | None = None) -> Iterator[Message]:
        """Records of [start, end), in order of their offsets."""
        return (one for one in self.records if start <= one.offset() and (end is None or one.offset() < end))

    def compact(self) -> None:
        """Keep the last record of each key, as Kafka may at any time."""
        last = {record.key(): record for record in self.records}
        self.records = [record for record in self.records if last[record.key()] is record]

    def is_fenced(self, number: int) -> bool:
        return number != self._writers


class MemoryWriter:
    def __init__(self, log: MemoryChangelog, number: int) -> None:
        self._log = log
        self._number = number

    def write(
        self,
        chunks: Iterable[Records],
        last: Callable[[], tuple[bytes, bytes | None]],
        *,
        purpose: str,
        outputs: Outputs | None = None,
        patience_seconds: float | None = None,
    ) -> int:
        """All of it or nothing; returns the offset of the last record."""
        records = [pair for keys, values in chunks for pair in zip(keys, values, strict=True)]
        records.append(last())
        if self._log.is_fenced(self._number):
            raise IndeterminateCommitError("another writer has taken the changelog", fenced=True)
        first = self._log.next_offset
        self._log.records += [
            Message(topic="memory", partition=0, offset=offset, key=key, value=value)
            for offset, (key, value) in enumerate(records, first)
        ]
        if outputs is not None:
            for chunk in outputs.chunks:
                headers = chunk.headers or [None] * len(chunk.keys)
                sent = zip(chunk.keys, chunk.values, headers, strict=True)
                self._log.outputs += [(outputs.topic, *record) for record in sent]
        self._log.next_offset = first + len(records) + 1
        return first + len(records) - 1
