"""One key's timers while its batch is processed: what was stored is due, moved or deleted, and what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from changelog_state.codec.timers import TimerTime

__all__ = ["KeyTimers"]


class KeyTimers:
    """``changes`` has what the batch makes of them: None deletes."""

    def __init__(self) -> None:
        self.changes: dict[str, TimerTime | None] = {}
        self._recent: dict[str, TimerTime | None] = {}

    def change(self, name: str, time: TimerTime | None) -> None:
        self.changes[name] = self._recent[name] = time

    def due(
        self,
        stored: Iterable[tuple[str, TimerTime]],
        now_ms: int,
        watermark_ms: int | None,
        may_call: Callable[[TimerTime], bool],
    ) -> Iterator[tuple[str, TimerTime]]:
        """Those whose time has come, earliest first, each deleted before it is given.

        ``stored``: the stored ones that are due. Setting a timer while another one is handled counts in this batch
        only for a later time than that one's: else a timer that is always set again would never let the batch end.
        ``may_call``: whether one that was set in this batch is called in it already; else it comes with the next.
        """
        waiting = dict(stored)
        after: int | None = None
        while True:
            for name, time in self._recent.items():
                waiting.pop(name, None)
                if time is None or not _is_due(time, now_ms, watermark_ms) or not may_call(time):
                    continue
                if after is None or time.at_ms > after:
                    waiting[name] = time
            self._recent = {}
            if not waiting:
                return
            name = min(waiting, key=lambda each: (waiting[each].at_ms, each))
            time = waiting.pop(name)
            self.changes[name] = None
            after = time.at_ms
            yield name, time


def _is_due(time: TimerTime, now_ms: int, watermark_ms: int | None) -> bool:
    now = watermark_ms if time.by_event_time else now_ms
    return now is not None and time.at_ms <= now
