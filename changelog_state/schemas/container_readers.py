"""Readers of arrays, maps and unions, made of readers of what is inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from changelog_state.schemas.binary import MAX_EMPTY_ITEMS, read_count, read_size
from changelog_state.schemas.record_code import Read

__all__ = ["read_array", "read_map", "read_union"]


def read_array(read_item: Read) -> Read:
    def read(data: bytes, pos: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        count, pos = read_count(data, pos)
        while count:
            if count > len(data) and count + len(items) > MAX_EMPTY_ITEMS:
                raise ValueError(f"an array has {count} items in {len(data)} bytes")
            for _ in range(count):
                item, pos = read_item(data, pos)
                items.append(item)
            count, pos = read_count(data, pos)
        return items, pos

    return read


def read_map(read_value: Read) -> Read:
    def read(data: bytes, pos: int) -> tuple[dict[str, Any], int]:
        entries = {}
        count, pos = read_count(data, pos)
        while count:
            for _ in range(count):
                size, pos = read_size(data, pos)
                end = pos + size
                name = data[pos:end].decode()
                entries[name], pos = read_value(data, end)
            count, pos = read_count(data, pos)
        return entries, pos

    return read


def read_union(branches: Sequence[Read]) -> Read:
    def read(data: bytes, pos: int) -> tuple[Any, int]:
        number, pos = read_size(data, pos)
        if number >= len(branches):
            raise ValueError(f"{number} is not a branch of the union")
        return branches[number](data, pos)

    return read
