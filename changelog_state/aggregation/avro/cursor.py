"""Where each of many encoded values is read next."""

from __future__ import annotations

from typing import NoReturn, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from changelog_state.aggregation.avro.pieces import Mask, offsets_of
from changelog_state.codec.json_reader import unreadable

__all__ = ["Cursor"]

_Positions = npt.NDArray[np.int64]
_PADDING = 16
"""A look at the bytes ahead must stay within the buffer, also at the end of the last value."""


class Cursor:
    """Moves through all values together. No position ever passes the end of its value."""

    def __init__(self, data: npt.NDArray[np.uint8], positions: _Positions, ends: _Positions) -> None:
        """``data`` goes on for some bytes behind the last value."""
        self.data = data
        self.positions = positions
        self._ends = ends
        self._begins = positions

    @classmethod
    def over(cls, values: pa.Array) -> Self:
        """At the beginning of each entry of a binary array without nulls."""
        offsets = offsets_of(values).astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        data = np.zeros(last - first + _PADDING, dtype=np.uint8)
        content = values.buffers()[2]
        if last > first:
            data[:-_PADDING] = np.frombuffer(content, np.uint8, last - first, first)
        offsets -= first
        return cls(data, offsets[:-1], offsets[1:])

    def __len__(self) -> int:
        return len(self.positions)

    def bytes(self) -> npt.NDArray[np.uint8]:
        """The next byte of each value. Meaningless at the end of a value, where ``advance`` fails."""
        return self.data[self.positions]

    def words(self, ahead: int = 0) -> npt.NDArray[np.uint64]:
        """The next eight bytes of each value as a number, the first byte lowest."""
        overlapping: npt.NDArray[np.uint64] = np.ndarray(
            (len(self.data) - 7,), np.dtype("<u8"), self.data.data, strides=(1,)
        )
        return overlapping[self.positions + ahead if ahead else self.positions]

    def advance(self, sizes: npt.NDArray[np.int64] | int) -> None:
        moved = self.positions + sizes
        beyond = moved > self._ends
        if beyond.any():
            self.refuse_if(np.flatnonzero(beyond), "it is cut short")
        self.positions = moved

    def some(self, rows: npt.NDArray[np.int64]) -> Cursor:
        """A cursor over these values only. ``rejoin`` takes over how far it came."""
        found = Cursor(self.data, self.positions[rows], self._ends[rows])
        found._begins = self._begins[rows]
        return found

    def rejoin(self, rows: npt.NDArray[np.int64], part: Cursor) -> None:
        moved = self.positions.copy()
        moved[rows] = part.positions
        self.positions = moved

    def remaining(self) -> _Positions:
        """How many bytes each value has left."""
        return self._ends - self.positions

    def finish(self) -> None:
        """Everything must have been read."""
        self.refuse_if(np.flatnonzero(self.positions != self._ends), "it goes on behind its last field")

    def refuse_if(self, rows: npt.NDArray[np.int64] | Mask, why: str) -> None:
        """Fail because of these values, if there are any."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)
        if len(rows):
            self._refuse(int(rows[0]), why)

    def _refuse(self, row: int, why: str) -> NoReturn:
        raise unreadable(self.data[self._begins[row] : self._ends[row]].tobytes(), why)
