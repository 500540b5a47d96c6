"""Two inputs joined by key and time: rows wait in state for partners, until the watermark says that none can come.

    left, right    maps of a key's waiting rows: (time in microseconds, number) → {"row": …}; where rows without a
                   partner are to come out, also "matched"

A key's one timer is for the waiting row whose time is over first. Rows are late if the watermark before the batch has
passed them, and a row waits until the watermark has passed everything that it could be matched with. So if late rows
are dropped, no pair is ever missed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from changelog_state.codec.avro import encode_value
from changelog_state.durations import to_datetime
from changelog_state.errors import InvalidInputError
from changelog_state.state.collections import MapState
from changelog_state.state.handle import State
from changelog_state.state.variables import Map, Variable
from changelog_state.task.grouping import Row
from changelog_state.task.keyed import KeyedProgram
from changelog_state.task.stored_rows import StoredRows, epoch_us

__all__ = ["VARIABLES", "Side", "StreamJoin", "stream_join_program"]

_NAMES: Final = ("left", "right")
_LONG_AGO_US: Final = -(1 << 62)
VARIABLES: Final[Mapping[str, Variable]] = {name: Map(name, tuple) for name in _NAMES}


@dataclass(frozen=True)
class Side:
    input: str
    rows: StoredRows
    earlier_us: int
    """How much earlier than a row of this side its partner may be."""
    later_us: int
    keeps_unmatched: bool
    """Whether rows without a partner come out in the end."""


class _Held:
    """A row that waits, or has just come."""

    __slots__ = ("matched", "matched_before", "number", "row", "stored", "time_us")

    def __init__(self, time_us: int, number: int, row: Row, stored: dict[str, Any], matched: bool) -> None:
        self.time_us = time_us
        self.number = number
        self.row = row
        self.stored = stored
        self.matched = self.matched_before = matched


def stream_join_program(join: StreamJoin) -> KeyedProgram:
    return KeyedProgram(join, join.on_timer)


@dataclass(frozen=True)
class StreamJoin:
    key_columns: tuple[str, ...]
    tag: str
    event_time: str
    left: Side
    right: Side

    def __call__(self, key: Any, rows: list[Row], state: State) -> Iterator[Row]:
        """
        1. Read those waiting rows that may be partners of the new ones.
        2. Match new left rows with all right ones, and new right rows with the left ones that were waiting.
        3. Keep the new rows, unless their time is over; set the timer if one of them is the first whose time will be.
        """
        new = self._new_rows(rows)
        waiting = [self._waiting(state, number, new) for number in (0, 1)]
        for own, its_new in zip(waiting, new, strict=True):
            _number(its_new, own)
        for left, right in self._pairs(new, waiting):
            left.matched = right.matched = True
            yield self._output(key, left.row, right.row)
        for number, name in enumerate(_NAMES):
            yield from self._keep(key, state, number, state.map(name), new[number], waiting[number])
        self._set_timer(state, new)

    def on_timer(self, key: Any, name: str, at: datetime, state: State) -> Iterator[Row]:
        """Rows whose time is over leave; those that have met no partner come out, if they are wanted."""
        for number, name_of_side in enumerate(_NAMES):
            held = state.map(name_of_side)
            for entry, value in list(held.items(end=(self._over_before_us(number, state),))):
                del held[entry]
                row = self._sides[number].rows.to_row(value["row"])
                yield from self._unmatched(key, number, row, value.get("matched", False))
        self._set_timer(state)

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.left, self.right

    def _new_rows(self, rows: list[Row]) -> tuple[list[_Held], list[_Held]]:
        """Of each side, in order of time."""
        new: tuple[list[_Held], list[_Held]] = ([], [])
        inputs = [side.input for side in self._sides]
        for row in rows:
            if row[self.tag] not in inputs:
                raise InvalidInputError(
                    f"a row is of input {row[self.tag]!r}, but {inputs[0]!r} and {inputs[1]!r} are joined; leave out "
                    f"others with df.where({self.tag} in …)"
                )
            number = inputs.index(row[self.tag])
            side = self._sides[number].rows
            its_row = {name: row[name] for name in side.columns}
            new[number].append(_Held(epoch_us(row[self.event_time]), 0, its_row, side.to_stored(row), False))
        for its_new in new:
            its_new.sort(key=lambda held: held.time_us)
        return new

    def _waiting(self, state: State, number: int, new: tuple[list[_Held], list[_Held]]) -> list[_Held]:
        """Rows of this side that are near in time to new ones of the other, or as old as new ones of their own."""
        its_new, others, other = new[number], new[1 - number], self._sides[1 - number]
        times_us = [held.time_us for held in (its_new[:1] + its_new[-1:])]
        if others:
            times_us += [others[0].time_us - other.earlier_us, others[-1].time_us + other.later_us]
        found = state.map(_NAMES[number]).items(start=(min(times_us),), end=(max(times_us) + 1,))
        to_row = self._sides[number].rows.to_row
        return [
            _Held(time_us, its_number, to_row(value["row"]), value["row"], value.get("matched", False))
            for (time_us, its_number), value in found
        ]

    def _pairs(
        self, new: tuple[list[_Held], list[_Held]], waiting: list[list[_Held]]
    ) -> Iterator[tuple[_Held, _Held]]:
        all_right = sorted([*waiting[1], *new[1]], key=lambda held: (held.time_us, held.number))
        for left in new[0]:
            for right in _near(all_right, left.time_us - self.left.earlier_us, left.time_us + self.left.later_us):
                yield left, right
        for right in new[1]:
            for left in _near(waiting[0], right.time_us - self.right.earlier_us, right.time_us + self.right.later_us):
                yield left, right

    def _keep(
        self, key: Any, state: State, number: int, held: MapState, new: list[_Held], waiting: list[_Held]
    ) -> Iterator[Row]:
        keeps_unmatched = self._sides[number].keeps_unmatched
        over_before_us = self._over_before_us(number, state)
        for each in new:
            if each.time_us < over_before_us:
                yield from self._unmatched(key, number, each.row, each.matched)
            else:
                held[each.time_us, each.number] = self._entry(number, each)
        for each in waiting:
            if keeps_unmatched and each.matched and not each.matched_before:
                held[each.time_us, each.number] = self._entry(number, each)

    def _entry(self, number: int, held: _Held) -> dict[str, Any]:
        return {"row": held.stored, **({"matched": held.matched} if self._sides[number].keeps_unmatched else {})}

    def _over_before_us(self, number: int, state: State) -> int:
        """Rows from before this have seen all partners that could come: the watermark has passed those, too."""
        watermark_ms = state._context.watermark_ms
        return _LONG_AGO_US if watermark_ms is None else watermark_ms * 1000 - self._sides[number].later_us

    def _set_timer(self, state: State, new: tuple[list[_Held], list[_Held]] | None = None) -> None:
        """For the row whose time is over first, unless that was waiting already: it has its timer."""
        first: list[tuple[int, bool]] = []
        for number, name in enumerate(_NAMES):
            for entry in state.map(name).keys(limit=1):
                is_new = new is None or any((held.time_us, held.number) == entry for held in new[number])
                first.append((entry[0] + self._sides[number].later_us, is_new))
        if first and min(first)[1]:
            state.set_timer(to_datetime(min(first)[0] // 1000 + 1), clock="event")

    def _unmatched(self, key: Any, number: int, row: Row, matched: bool) -> Iterator[Row]:
        if self._sides[number].keeps_unmatched and not matched:
            yield self._output(key, row, None) if number == 0 else self._output(key, None, row)

    def _output(self, key: Any, left: Row | None, right: Row | None) -> Row:
        parts = (key,) if len(self.key_columns) == 1 else key
        return {**dict(zip(self.key_columns, parts, strict=True)), self.left.input: left, self.right.input: right}


def _near(held: list[_Held], first_us: int, last_us: int) -> list[_Held]:
    start = bisect_left(held, first_us, key=_time)
    return held[start : bisect_right(held, last_us, start, key=_time)]


def _time(held: _Held) -> int:
    return held.time_us


def _number(new: list[_Held], waiting: list[_Held]) -> None:
    """Rows of one microsecond are told apart by numbers.

    Among those of one batch, their content decides, and not the order in which they have come: that may be another
    one when the batch is replayed.
    """
    last = {held.time_us: held.number for held in waiting}
    for time_us, group in groupby(new, key=_time):
        together = list(group)
        if len(together) > 1:
            together.sort(key=lambda held: encode_value(held.stored))
        for number, held in enumerate(together, last.get(time_us, -1) + 1):
            held.number = number
    new.sort(key=lambda held: (held.time_us, held.number))
