"""The contract that every local store fulfils (`tests/contract` runs it against each of them)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

__all__ = ["Batch", "Store", "next_prefix"]


class Batch(Protocol):
    """Writes that become visible, and durable, together or not at all. Later writes win."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Delete what the *store* holds in [start, end). Must come before the batch's puts in that range."""


class Store(Protocol):
    """An ordered map of bytes to bytes with atomic batches."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: list[bytes]) -> list[bytes | None]: ...

    def scan(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Entries of [start, end) in key order, as of now; later writes do not show."""

    def scan_keys(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        """The keys of ``scan``, without reading the values."""

    def batch(self) -> Batch: ...

    def write(self, batch: Batch) -> None: ...

    def flush(self) -> None:
        """Make everything written so far survive the loss of the process."""

    def close(self) -> None:
        """Flush and let go of it; a second time changes nothing."""


def next_prefix(prefix: bytes) -> bytes | None:
    """The smallest key that is greater than every key starting with ``prefix``; None: there is none."""
    trimmed = prefix.rstrip(b"\xff")
    if not trimmed:
        return None
    return trimmed[:-1] + bytes([trimmed[-1] + 1])
