"""One key's records as values, lists and maps: how state looks from outside a batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from changelog_state.codec.entries import decode_entry_key, is_header, split_suffix
from changelog_state.state.context import StateContext

__all__ = ["values_of"]


def values_of(context: StateContext, entries: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """By their names. ``entries``: what the record keys end with, in ascending order, and what is stored."""
    found: dict[str, Any] = {}
    for suffix, data in entries:
        name, entry = split_suffix(suffix)
        value = context.visible(data)
        if value is None:
            continue
        codec = context.codec_of(name)
        if entry is None:
            kind = is_header(value)
            found[name] = _Collected(kind) if kind is not None else context.decode(codec, value, name)
        elif isinstance(found.get(name), _Collected):
            found[name].entries[decode_entry_key(entry)] = context.decode(codec, value, name)
    return {
        name: value.whole() if isinstance(value, _Collected) else value
        for name, value in found.items()
        if not isinstance(value, _Collected) or value.entries
    }


class _Collected:
    """A list or map whose entries are being met."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.entries: dict[Any, Any] = {}

    def whole(self) -> Any:
        return self.entries if self._kind == "map" else list(self.entries.values())
