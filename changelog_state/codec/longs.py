"""Avro's longs: zigzag, then seven bits at a time."""

from __future__ import annotations

from typing import Final

__all__ = ["read_long", "write_long"]

_MAX_ULONG: Final = (1 << 64) - 1

# Varints, 14 bits at a time: two bytes that go on, and one or two bytes that end it.
_MORE: Final = [bytes((i & 127 | 128, i >> 7 | 128)) for i in range(1 << 14)]
_LAST: Final = [bytes((i,)) if i < 128 else bytes((i & 127 | 128, i >> 7)) for i in range(1 << 14)]


def write_long(number: int) -> bytes:
    """A number of at most 64 bits, which nobody checks here."""
    rest = number << 1 ^ number >> 63
    out = b""
    while rest > 16383:
        out += _MORE[rest & 16383]
        rest >>= 14
    return out + _LAST[rest]


def read_long(data: bytes, pos: int) -> tuple[int, int]:
    """The number at ``pos``, and where it ends."""
    number = 0
    for shift in (0, 7, 14, 21, 28, 35, 42, 49, 56, 63):
        byte = data[pos]
        pos += 1
        if byte < 128:
            number |= byte << shift
            if number > _MAX_ULONG:
                break
            return number >> 1 ^ -(number & 1), pos
        number |= (byte & 127) << shift
    raise ValueError("a number has more than 64 bits")
