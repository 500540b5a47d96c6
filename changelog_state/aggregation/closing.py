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

    def set_timers(self, task: PartitionTask, suffix: bytes, encoded: pa.Array, starts: pa.Array) -> None:
        """For windows that are new."""
        for key, start_ms in zip(encoded.to_pylist(), starts.to_pylist(), strict=True):
            at_ms = start_ms + self.size_ms + self.grace_ms
            task.stage.add_later(TIMER + key + suffix, encode_timer(TimerTime(at_ms, by_event_time=True)))

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
