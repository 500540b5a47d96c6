"""Avro's integers (zigzag, seven bits to a byte, lowest first), many at once.

Up to 8 bytes of a number are handled as one 64-bit word. Moving seven bits per byte together, or apart, takes three
steps, each for pairs of neighbours: 7+7 bits, 14+14, 28+28.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from changelog_state.aggregation.avro.cursor import Cursor
from changelog_state.aggregation.avro.pieces import Mask, ragged_piece, wide_piece

__all__ = ["read_longs", "varint_piece"]

_U = np.uint64
_CONTINUES = _U(0x8080808080808080)
_SEVEN_BITS = _U(0x7F7F7F7F7F7F7F7F)
_STEPS = (
    (_U(1), _U(0x007F007F007F007F), _U(0x7F007F007F007F00)),
    (_U(2), _U(0x00003FFF00003FFF), _U(0x3FFF00003FFF0000)),
    (_U(4), _U(0x000000000FFFFFFF), _U(0x0FFFFFFF00000000)),
)


def varint_piece(numbers: npt.NDArray[np.int64], present: Mask | None = None) -> pa.Array:
    """Each number as Avro writes a long."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    largest = int(zigzag.max(initial=0))
    if largest < 0x80:
        return wide_piece(zigzag.astype(np.uint8), 1, present)
    sizes = np.ones(len(zigzag), dtype=np.int64)
    for bits in range(7, largest.bit_length(), 7):
        sizes += zigzag >= _U(1 << bits)
    ends = np.cumsum(sizes)
    data = np.empty(int(ends[-1]), dtype=np.uint8)
    places, last, rest = ends - sizes, ends - 1, zigzag
    while len(places):
        going_on = places < last
        data[places] = rest.astype(np.uint8) & np.uint8(0x7F) | going_on.view(np.uint8) << np.uint8(7)
        places, last, rest = places[going_on] + 1, last[going_on], rest[going_on] >> _U(7)
    return ragged_piece(data, sizes, present)


def read_longs(cursor: Cursor) -> npt.NDArray[np.int64]:
    """The number at each position, which moves behind it."""
    words = cursor.words()
    if not (words & _U(0x80)).any():
        sizes: npt.NDArray[np.int64] | int = 1
        zigzag = words & _U(0x7F)
    else:
        ends = ~words & _CONTINUES
        ends &= ~ends + _U(1)  # the lowest: where the number ends
        below = ends - _U(1)  # all bits, if it does not end within the word
        zigzag = words & (below | ends) & _SEVEN_BITS
        for shift, kept, moved in _STEPS:
            zigzag = (zigzag & kept) | ((zigzag & moved) >> shift)
        # Powers of two are exact as floats, whose exponent tells which one it is.
        sizes = (np.frexp(ends.astype(np.float64))[1] >> 3).astype(np.int64)
        longer = np.flatnonzero(ends == 0)
        if len(longer):
            following = cursor.words(8)[longer]
            ninth, tenth = following & _U(0xFF), (following >> _U(8)) & _U(0xFF)
            two = ninth >= _U(0x80)
            cursor.refuse_if(longer[two & (tenth > _U(1))], "a number has more than 64 bits")
            zigzag[longer] |= (ninth & _U(0x7F)) << _U(56) | np.where(two, tenth << _U(63), _U(0))
            sizes[longer] = 9 + two
    cursor.advance(sizes)
    return (zigzag >> _U(1)).view(np.int64) ^ -(zigzag & _U(1)).view(np.int64)
