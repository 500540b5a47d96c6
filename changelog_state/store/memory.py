"""The contract in plain Python, for tests of logic and for users' own tests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from changelog_state.store.base import Batch

__all__ = ["MemoryStore"]


class MemoryBatch:
    def __init__(self) -> None:
        self.operations: list[tuple[str, bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.operations.append(("put", key, value))

    def delete(self, key: bytes) -> None:
        self.operations.append(("delete", key, b""))

    def delete_range(self, start: bytes, end: bytes) -> None:
        self.operations.append(("delete_range", start, end))


class MemoryStore:
    """Keeps what was flushed apart, so that a test can lose the rest as a crash would."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}
        self._ordered: list[bytes] | None = None
        """All keys, unless something was written since they were sorted."""
        self._flushed: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self._entries.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        if self._ordered is None:
            self._ordered = sorted(self._entries)
        ordered = self._ordered
        last = len(ordered) if end is None else bisect_left(ordered, end)
        return iter([(key, self._entries[key]) for key in ordered[bisect_left(ordered, start) : last]])

    def scan_keys(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        return (key for key, _ in self.scan(start, end))

    def batch(self) -> MemoryBatch:
        return MemoryBatch()

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, MemoryBatch)
        self._ordered = None
        for operation, key, value in batch.operations:
            if operation == "put":
                self._entries[key] = value
            elif operation == "delete":
                self._entries.pop(key, None)
            else:
                for doomed in [k for k in self._entries if key <= k < value]:
                    del self._entries[doomed]

    def flush(self) -> None:
        self._flushed = dict(self._entries)

    def crash(self) -> None:
        """Lose everything that was not flushed."""
        self._entries = dict(self._flushed)
        self._ordered = None

    def close(self) -> None:
        self.flush()
