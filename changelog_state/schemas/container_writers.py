"""Writers of what is made of other types, or of a conversion: arrays, maps, unions, enums, fixed, logical types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from changelog_state.schemas import tree
from changelog_state.schemas.binary import LONGS, MAX_EMPTY_ITEMS
from changelog_state.schemas.logical import Logical
from changelog_state.schemas.plain_writers import as_bytes, as_str

__all__ = ["Write", "converted", "write_array", "write_enum", "write_fixed", "write_map", "write_union"]

Write = Callable[[Any], bytes]


def converted(write: Write, logical: Logical | None) -> Write:
    if logical is None:
        return write
    to_raw = logical.to_raw
    return lambda value: write(to_raw(value))


def write_fixed(size: int) -> Write:
    def write(value: Any) -> bytes:
        data = as_bytes(value)
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes are not {size}")
        return data

    return write


def write_enum(node: tree.Enum, plain: bool) -> Write:
    written = {symbol: LONGS[index] for index, symbol in enumerate(node.symbols)}
    cls: Any = None if plain or node.binding is None else node.binding.cls
    if cls is None:
        return lambda value: written[as_str(value)]
    members = {cls[symbol]: data for symbol, data in written.items()}

    def write(value: Any) -> bytes:
        if not isinstance(value, cls):
            raise TypeError(f"{value!r} is not a {cls.__qualname__}")
        return members[value]

    return write


def write_array(item: Write) -> Write:
    def write(items: Any) -> bytes:
        if not isinstance(items, list | tuple):
            raise TypeError(f"{type(items).__qualname__} is not a list")
        if not items:
            return b"\x00"
        parts = list(map(item, items))
        if len(parts) > MAX_EMPTY_ITEMS and not any(parts):
            raise ValueError(f"more than {MAX_EMPTY_ITEMS} items without content")
        return b"".join([LONGS[len(items)], *parts, b"\x00"])

    return write


def write_map(write_value: Write) -> Write:
    def write(entries: Any) -> bytes:
        if not isinstance(entries, Mapping):
            raise TypeError(f"{type(entries).__qualname__} is not a dict")
        if not entries:
            return b"\x00"
        parts = [LONGS[len(entries)]]
        for key, value in entries.items():
            name = str.encode(key)  # a TypeError unless it is a str
            parts += (LONGS[len(name)], name, write_value(value))
        parts.append(b"\x00")
        return b"".join(parts)

    return write


def write_union(branches: list[tuple[tuple[type, ...], Write]]) -> Write:
    """The branch whose own class the value has; else the first one that takes it."""
    numbered = [(LONGS[number], classes, write) for number, (classes, write) in enumerate(branches)]

    def write(value: Any) -> bytes:
        kind = type(value)
        for exact in (True, False):
            for number, classes, write_branch in numbered:
                if (kind in classes) is exact:
                    try:
                        return number + write_branch(value)
                    except (TypeError, ValueError, KeyError, ArithmeticError):
                        continue  # another branch may take it
        raise TypeError(f"no branch takes {kind.__qualname__}")

    if len(numbered) == 2 and {classes for _, classes, _ in numbered} > {(type(None),)}:
        null = next(number for number, classes, _ in numbered if classes == (type(None),))
        other, branch = next((number, each) for number, classes, each in numbered if number != null)
        return lambda value: null if value is None else other + branch(value)
    return write
