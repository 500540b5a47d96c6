"""Readers of what has no other types inside: primitive types with their promotions, fixed, enums."""

from __future__ import annotations

from typing import Any, Final

from changelog_state.codec.longs import read_long
from changelog_state.schemas import tree
from changelog_state.schemas.binary import pack_float, read_double, read_float, read_size
from changelog_state.schemas.logical import Logical
from changelog_state.schemas.record_code import Read

__all__ = ["read_enum", "read_fixed", "read_leaf"]


def _null(data: bytes, pos: int) -> tuple[None, int]:
    return None, pos


def _boolean(data: bytes, pos: int) -> tuple[bool, int]:
    if data[pos] > 1:
        raise ValueError(f"{data[pos]} is not a boolean")
    return data[pos] == 1, pos + 1


def _bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, pos = read_size(data, pos)
    return data[pos : pos + size], pos + size


def _string(data: bytes, pos: int) -> tuple[str, int]:
    size, pos = read_size(data, pos)
    return data[pos : pos + size].decode(), pos + size


_PRIMITIVES: Final[dict[str, Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": read_long,
    "long": read_long,
    "float": read_float,
    "double": read_double,
    "bytes": _bytes,
    "string": _string,
}


def _rounded(number: int) -> float:
    """As it will be once it has been written with 32 bits: a value must not change by being rewritten."""
    return read_float(pack_float(number), 0)[0]


def read_leaf(written: str, declared: str, logical: Logical | None) -> Read:
    if written in ("string", "bytes") and declared != written:
        return _PRIMITIVES[declared]  # the same bytes
    read = _PRIMITIVES[written]
    if written in ("int", "long") and declared in ("float", "double"):
        return _converted(read, float if declared == "double" else _rounded)
    return read if logical is None else _converted(read, logical.from_raw)


def _converted(read: Read, convert: Any) -> Read:
    def read_converted(data: bytes, pos: int) -> tuple[Any, int]:
        raw, pos = read(data, pos)
        return convert(raw), pos

    return read_converted


def read_fixed(size: int, logical: Logical | None) -> Read:
    def read(data: bytes, pos: int) -> tuple[bytes, int]:
        return data[pos : pos + size], pos + size

    return read if logical is None else _converted(read, logical.from_raw)


def read_enum(written: tree.Enum, declared: tree.Enum) -> Read:
    cls: Any = declared.binding.cls if declared.binding else None
    # A symbol that is not declared any more has become the default: without one there is no reader.
    symbols = [each if each in declared.symbols else declared.default for each in written.symbols]
    members = symbols if cls is None else [cls[each] for each in symbols]

    def read(data: bytes, pos: int) -> tuple[Any, int]:
        number, pos = read_size(data, pos)
        if number >= len(members):
            raise ValueError(f"{number} is not a symbol of enum {written.name}")
        return members[number], pos

    return read
