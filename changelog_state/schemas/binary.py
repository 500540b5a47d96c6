"""What Avro's bytes are made of beside longs: sizes, counts of blocks, floating-point numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from changelog_state.codec.longs import read_long, write_long

__all__ = [
    "LONGS",
    "MAX_EMPTY_ITEMS",
    "pack_double",
    "pack_float",
    "read_count",
    "read_double",
    "read_float",
    "read_size",
    "unpack_double",
]

_MIN_LONG: Final = -(1 << 63)
_MAX_LONG: Final = (1 << 63) - 1
MAX_EMPTY_ITEMS: Final = 1 << 16
"""How many items without a single byte (null, a record without fields) an array may have.

Otherwise a few damaged bytes could say that there are 2^60 of them, and reading them would not end.
"""


class _Longs(dict[int, bytes]):
    """A look-up for small numbers and the usual sizes. Ask with an ``int`` only: 1 == 1.0 == True."""

    def __missing__(self, number: int) -> bytes:
        if not _MIN_LONG <= number <= _MAX_LONG:
            raise OverflowError(f"{number} does not fit into 64 bits")
        return write_long(number)


LONGS: Final = _Longs({number: write_long(number) for number in range(-256, 4096)})

pack_double: Final[Callable[[float], bytes]] = struct.Struct("<d").pack
pack_float: Final[Callable[[float], bytes]] = struct.Struct("<f").pack
unpack_double: Final = struct.Struct("<d").unpack_from
_unpack_float: Final = struct.Struct("<f").unpack_from


def read_double(data: bytes, pos: int) -> tuple[float, int]:
    return unpack_double(data, pos)[0], pos + 8


def read_float(data: bytes, pos: int) -> tuple[float, int]:
    return _unpack_float(data, pos)[0], pos + 4


def read_size(data: bytes, pos: int) -> tuple[int, int]:
    size = data[pos]
    if not size & 0x81:
        return size >> 1, pos + 1
    size, pos = read_long(data, pos)
    if size < 0:
        raise ValueError(f"a length is negative ({size})")
    return size, pos


def read_count(data: bytes, pos: int) -> tuple[int, int]:
    """How many items the next block of an array or map has; 0 ends it."""
    count, pos = read_long(data, pos)
    if count < 0:  # then the block's size in bytes follows, for readers that skip it
        _, pos = read_long(data, pos)
    return abs(count), pos
