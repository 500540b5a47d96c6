"""Windows of aggregates in a task: when one is over, by a timer per key and window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

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
