"""Reads values of the built-in schema; bytes that are not exactly one value are an error."""

from __future__ import annotations

import struct
from typing import Any, Final

from changelog_state.codec.json_schema import deeper
from changelog_state.codec.longs import read_long
from changelog_state.errors import ValueEncodingError

__all__ = ["read_body", "unreadable"]

_UNPACK_DOUBLE: Final = struct.Struct("<d").unpack_from


def read_body(data: bytes, offset: int) -> Any:
    """The value whose body fills ``data`` from ``offset`` to its end."""
    try:
        value, end = _read(data, offset, 0)
    except (IndexError, struct.error) as error:
        raise unreadable(data, "it is cut short") from error
    except ValueError as error:
        raise unreadable(data, str(error)) from error
    # A text that is cut short is found here too: its end lies behind the data.
    if end != len(data):
        raise unreadable(data, f"it ends at byte {end} of {len(data)}")
    return value


def unreadable(data: bytes, reason: str) -> ValueEncodingError:
    return ValueEncodingError(
        f"a stored value cannot be read: {reason}; its {len(data)} bytes begin with {data[:64].hex()};"
        " verify the store, and rebuild it if it is damaged"
    )


# Small numbers, lengths and counts are one byte without a sign (no bit of 0x81 set) and are read in place.


def _read(data: bytes, pos: int, depth: int) -> tuple[Any, int]:
    branch = data[pos]
    pos += 1
    if branch == 8:
        text, pos = _read_bytes(data, pos)
        return text.decode(), pos
    if branch == 4:
        number = data[pos]
        return read_long(data, pos) if number & 0x81 else (number >> 1, pos + 1)
    if branch == 6:
        return _UNPACK_DOUBLE(data, pos)[0], pos + 8
    if branch == 14:
        return _read_map(data, pos, deeper(depth))
    if branch == 12:
        return _read_array(data, pos, deeper(depth))
    if branch == 0:
        return None, pos
    if branch == 2:
        if data[pos] > 1:
            raise ValueError(f"{data[pos]} is not a boolean")
        return data[pos] == 1, pos + 1
    if branch == 10:
        return _read_bytes(data, pos)
    if branch == 16:
        digits, pos = _read_bytes(data, pos)
        return int.from_bytes(digits, "big", signed=True), pos
    raise ValueError(f"{branch} is not a branch of the union")


def _read_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size = data[pos]
    if size & 0x81:
        size, pos = read_long(data, pos)
        if size < 0:
            raise ValueError(f"a length is negative ({size})")
    else:
        size >>= 1
        pos += 1
    end = pos + size
    return data[pos:end], end


def _read_count(data: bytes, pos: int) -> tuple[int, int]:
    count = data[pos]
    if not count & 0x81:
        return count >> 1, pos + 1
    count, pos = read_long(data, pos)
    if count < 0:  # then the block's size in bytes follows, for readers that skip it
        _, pos = read_long(data, pos)
    return abs(count), pos


def _read_array(data: bytes, pos: int, depth: int) -> tuple[list[Any], int]:
    items = []
    count, pos = _read_count(data, pos)
    while count:
        for _ in range(count):
            item, pos = _read(data, pos, depth)
            items.append(item)
        count, pos = _read_count(data, pos)
    return items, pos


def _read_map(data: bytes, pos: int, depth: int) -> tuple[dict[str, Any], int]:
    entries = {}
    count, pos = _read_count(data, pos)
    while count:
        for _ in range(count):
            name, pos = _read_bytes(data, pos)
            entries[name.decode()], pos = _read(data, pos, depth)
        count, pos = _read_count(data, pos)
    return entries, pos
