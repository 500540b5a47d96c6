"""Writes values of the built-in schema, and says why a value cannot be written."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from changelog_state.codec.json_schema import MAX_DEPTH, deeper
from changelog_state.codec.longs import write_long
from changelog_state.errors import ValueEncodingError

__all__ = ["unsupported", "write_body"]

_ALLOWED: Final = "None, bool, int, float, str, bytes, list and dict with str keys"
_MIN_LONG: Final = -(1 << 63)
_MAX_LONG: Final = (1 << 63) - 1


class _Sizes(dict[int, bytes]):
    """Lengths and counts: a look-up for the usual ones."""

    def __missing__(self, size: int) -> bytes:
        return write_long(size)


_SIZES: Final = _Sizes({size: write_long(size) for size in range(1024)})
_SMALL_INTS: Final = {number: b"\x04" + write_long(number) for number in range(-256, 4096)}


# One function per type, each from (value, depth) to bytes.


def write_body(value: object) -> bytes:
    """The Avro body of a value. Raises whatever it meets; ``unsupported`` says what is wrong."""
    return _WRITERS[type(value)](value, 0)


def _write_none(_: None, depth: int) -> bytes:
    return b"\x00"


def _write_bool(flag: object, depth: int) -> bytes:
    return b"\x02\x01" if flag else b"\x02\x00"


def _write_int(number: Any, depth: int) -> bytes:
    small = _SMALL_INTS.get(number)
    if small is not None:
        return small
    number = int(number)
    if _MIN_LONG <= number <= _MAX_LONG:
        return b"\x04" + write_long(number)
    return _write_bigint(number)


def _write_bigint(number: int) -> bytes:
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return b"\x10" + write_long(size) + number.to_bytes(size, "big", signed=True)


_PACK_DOUBLE: Final[Callable[[int, float], bytes]] = struct.Struct("<Bd").pack


def _write_float(number: Any, depth: int) -> bytes:
    return _PACK_DOUBLE(6, number)


def _write_str(text: str, depth: int) -> bytes:
    data = text.encode()
    return b"\x08" + _SIZES[len(data)] + data


def _write_bytes(data: bytes | bytearray | memoryview, depth: int) -> bytes:
    raw = bytes(data)
    return b"\x0a" + _SIZES[len(raw)] + raw


def _write_list(items: list[Any] | tuple[Any, ...], depth: int) -> bytes:
    if not items:
        return b"\x0c\x00"
    inner = deeper(depth)
    parts = [_WRITERS[type(item)](item, inner) for item in items]
    return b"\x0c" + _SIZES[len(items)] + b"".join(parts) + b"\x00"


def _write_dict(entries: dict[Any, Any], depth: int) -> bytes:
    if not entries:
        return b"\x0e\x00"
    inner = deeper(depth)
    parts = [b"\x0e", _SIZES[len(entries)]]
    for key, value in entries.items():
        name = str.encode(key)  # a TypeError unless it is a str
        parts += (_SIZES[len(name)], name, _WRITERS[type(value)](value, inner))
    parts.append(b"\x00")
    return b"".join(parts)


class _Writers(dict[type, Callable[[Any, int], bytes]]):
    def __missing__(self, kind: type) -> Callable[[Any, int], bytes]:
        """A subclass is written as what it is a subclass of."""
        for base in kind.__mro__:
            if base in self:
                return self[base]
        raise TypeError(f"{kind.__name__} is not supported")


# NOTE: numpy's types are listed one by one because timedelta64 and longdouble must not slip in as numbers.
_WRITERS: Final = _Writers()
_WRITERS.update({type(None): _write_none, str: _write_str, dict: _write_dict})
_WRITERS.update(dict.fromkeys([list, tuple], _write_list))
_WRITERS.update(dict.fromkeys([bytes, bytearray, memoryview], _write_bytes))
_WRITERS.update(dict.fromkeys([bool, np.bool_], _write_bool))
_WRITERS.update(dict.fromkeys([float, np.float64, np.float32, np.float16], _write_float))
_WRITERS.update(dict.fromkeys([int, np.int8, np.int16, np.int32, np.int64], _write_int))
_WRITERS.update(dict.fromkeys([np.uint8, np.uint16, np.uint32, np.uint64], _write_int))


def unsupported(value: object) -> ValueEncodingError:
    """The error that says which part of a value cannot be written, and what to do."""
    return ValueEncodingError(_problem(value, "value", 0) or "value changed while it was written; pass a copy")


def _problem(value: object, path: str, depth: int) -> str | None:
    try:
        writer = _WRITERS[type(value)]
    except TypeError:
        return f"{path} is of type {type(value).__qualname__}; convert it to one of {_ALLOWED}"
    if isinstance(value, dict | list | tuple):
        if depth == MAX_DEPTH and value:
            return f"{path[:60]}… is nested more than {MAX_DEPTH} deep, or contains itself; store it flatter"
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            if isinstance(value, dict) and not isinstance(key, str):
                return f"{path} has a key of type {type(key).__qualname__}: {key!r}; make it a str"
            problem = _problem(key, f"key {key!r} of {path}", MAX_DEPTH) or _problem(
                value[key], f"{path}[{key!r}]", depth + 1
            )
            if problem:
                return problem
        return None
    try:
        writer(value, depth)
    except UnicodeEncodeError:
        return f"{path} is not valid Unicode: {value!r}; remove its lone surrogates, or store bytes"
    return None
