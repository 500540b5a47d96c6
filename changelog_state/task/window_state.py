"""One window of one key in a batch: the user's state in it, and what windows of its kind note beside that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from changelog_state.codec.avro import decode_value, encode_value
from changelog_state.codec.entries import name_suffix
from changelog_state.codec.key_parts import PARTS
from changelog_state.codec.kinds import TIMER
from changelog_state.codec.timers import TimerTime, encode_timer
from changelog_state.errors import InvalidInputError
from changelog_state.state.collections import Previous
from changelog_state.state.handle import State
from changelog_state.task.grouping import Row
from changelog_state.task.key_state import Prefetched, stage_state
from changelog_state.task.partition_task import PartitionTask

__all__ = ["CLOSE", "START_BYTES", "KeyWindows", "WindowState", "encode_start", "split_start"]

CLOSE: Final = "close"
"""The timer that lets a window's time come."""
_START: Final = PARTS["long"]
START_BYTES: Final = 9
"""Of a window in an encoded key, whose last part it is."""


def encode_start(start_ms: int) -> bytes:
    return _START.type_byte + _START.encode(start_ms)


def split_start(encoded_key: bytes) -> tuple[bytes, int]:
    """The user's key, encoded, and the window."""
    prefix = encoded_key[:-START_BYTES]
    return prefix, int(_START.decode(encoded_key, len(prefix) + 1)[0])


class WindowState:
    def __init__(self, number_ms: int, encoded: bytes, state: State, note: bytes | None) -> None:
        """``number_ms``: the window's start, or what stands for it in the key."""
        self.number_ms = number_ms
        self.encoded = encoded
        self.state = state
        self.note: Any = None if note is None else decode_value(note)
        self.timers: dict[str, int | None] = {}
        """What becomes of them: when they are due by the watermark; None: they are deleted."""
        self._note_before = note

    @property
    def was_stored(self) -> bool:
        return bool(self.state._stored) or self._note_before is not None

    @property
    def is_empty(self) -> bool:
        """Whether the user's functions keep nothing in it."""
        merged = {**self.state._stored, **self.state._changes}
        return all(value is None for value in merged.values())

    def forget(self) -> None:
        """The user's state. Timers of others than us there are none."""
        for name in {**self.state._stored, **self.state._changes}:
            self.state.delete(name)

    def stage(
        self,
        task: PartitionTask,
        note_name: str | None,
        expired: Iterable[tuple[bytes, bytes]],
        rewritten: Iterable[tuple[bytes, bytes, bytes]],
    ) -> None:
        others: dict[bytes, tuple[bytes | None, Previous]] = {}
        if note_name is not None:
            if note_name in self.state._changes or note_name in self.state._context.variables:
                raise InvalidInputError(f"windows of this kind keep a {note_name!r} of their own; use another name")
            note = None if self.note is None else encode_value(self.note)
            if note != self._note_before:
                others[task.names.setdefault(note_name, name_suffix(note_name))] = note, self._note_before
        stage_state(task, self.encoded, self.state, expired, others, rewritten)
        for name, at_ms in self.timers.items():
            timer = None if at_ms is None else encode_timer(TimerTime(at_ms, True))
            task.stage.add_later(TIMER + self.encoded + name_suffix(name), timer)


class KeyWindows:
    """One key: its rows, what is due, and those of its windows that have been read."""

    def __init__(
        self, key: Any, prefix: bytes, rows: list[Row], due: Mapping[int, set[str]], make: Callable[..., State]
    ) -> None:
        self.key = key
        self.prefix = prefix
        """What the keys of all its windows begin with."""
        self.rows = rows
        self.due = due
        """Names of the timers whose time has come, by window."""
        self.windows: dict[int, WindowState] = {}
        self.plan: Any = None
        """What was found out before the windows were read."""
        self._make = make

    def window(self, number_ms: int) -> WindowState:
        return self.windows.get(number_ms) or self.new_window(number_ms)

    def new_window(self, number_ms: int, *, keep: bool = True) -> WindowState:
        """``keep``: or else nothing of what becomes of it counts."""
        made = self._read(number_ms, {}, ())
        if keep:
            self.windows[number_ms] = made
        return made

    def add_stored(
        self, number_ms: int, stored: dict[str, bytes], entries: Iterable[Prefetched], note_name: str | None
    ) -> None:
        note = None if note_name is None else stored.pop(note_name, None)
        self.windows[number_ms] = self._read(number_ms, stored, entries, note)

    def _read(
        self, number_ms: int, stored: dict[str, bytes], entries: Iterable[Prefetched], note: bytes | None = None
    ) -> WindowState:
        encoded = self.prefix + encode_start(number_ms)
        state = self._make(stored, encoded)
        for name, its_entries, complete in entries:
            state._prefetched(name, its_entries, complete)
        return WindowState(number_ms, encoded, state, note)
