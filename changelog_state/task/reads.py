"""What a task needs of its partition's owner. ``session.Session`` is the real one; tests have one in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from changelog_state.state.context import StateReads

__all__ = ["TaskSession"]


class TaskSession(StateReads, Protocol):
    def get(self, keys: list[bytes]) -> list[dict[str, bytes]]: ...

    def scan_many(self, ranges: list[tuple[bytes, bytes]], limit: int) -> list[list[tuple[bytes, bytes]]]: ...

    def due(
        self, now_ms: int, watermark_ms: int | None, most_timers: int, most_expired: int
    ) -> list[tuple[bytes, bytes]]: ...

    def read_columns(self, record_keys: pa.Array) -> pa.Array:
        """Records from before the batch, null where there is none; both binary arrays."""

    def stage(self, keys: list[bytes], values: list[bytes | None], previous: list[bytes | None]) -> None: ...

    def stage_columns(self, keys: pa.Array, values: pa.Array, previous: pa.Array) -> None:
        """Like ``stage``, with binary arrays."""

    def output(self, topic: str, keys: pa.Array, values: pa.Array, headers: pa.Array) -> None: ...

    def seal(self, names: Iterable[str], schemas: Mapping[bytes, str] | None = None) -> dict[str, Any]: ...

    def close(self) -> None: ...
