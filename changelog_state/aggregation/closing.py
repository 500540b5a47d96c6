"""Windows of aggregates in a task: when one is over, by a timer per key and window, and its column in the results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.codec.kinds import TIMER
from changelog_state.codec.timers import TimerTime, encode_timer
from changelog_state.task.partition_task import PartitionTask

__all__ = ["Closing"]


@dataclass(frozen=True)
class Closing:
    """The last column of a key is the start of its window, in milliseconds since 1970."""

    size_ms: int
    grace_ms: int
    emit: Literal["update", "close"]

    def set_timers(self, task: PartitionTask, suffix: bytes, windows: Iterable[tuple[bytes, int]]) -> None:
        """By their keys, with where they begin."""
        for key, start_ms in windows:
            timer = encode_timer(TimerTime(self._closes_ms(start_ms), by_event_time=True))
            task.stage.add_later(TIMER + key + suffix, timer)

    def is_over(self, start_ms: int, watermark_ms: int | None) -> bool:
        return watermark_ms is not None and self._closes_ms(start_ms) <= watermark_ms

    def _closes_ms(self, start_ms: int) -> int:
        return start_ms + self.size_ms + self.grace_ms

    def forget_timers(self, task: PartitionTask, suffix: bytes, keys: Iterable[bytes]) -> None:
        for key in keys:
            task.stage.add_later(TIMER + key + suffix, None)

    def columns(self, key_columns: Sequence[pa.Array], kind: pa.DataType) -> list[pa.Array]:
        """Those of the key, and the window of Spark's type instead of its start."""
        *others, starts = key_columns
        micros = pc.multiply(starts.cast(pa.int64()), 1_000)
        ends = pc.add(micros, self.size_ms * 1_000)
        parts = [each.cast(field.type) for each, field in zip((micros, ends), kind, strict=True)]
        return [*others, pa.StructArray.from_arrays(parts, fields=list(kind))]
