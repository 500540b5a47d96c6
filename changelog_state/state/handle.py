"""``state`` in a user's function: one key's named values, with reads that see the function's own writes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from changelog_state.codec.avro import encode_value
from changelog_state.errors import InvalidKeyError
from changelog_state.state.ttl import ABSENT, decode_visible, encode_expiring, ttl_ms

__all__ = ["State"]


class State:
    """Values are taken and given by value: changing a list that came from ``get`` needs a ``set`` to count."""

    __slots__ = ("_changes", "_now_ms", "_stored")

    def __init__(self, stored: dict[str, bytes], now_ms: int) -> None:
        self._stored = stored
        self._now_ms = now_ms
        self._changes: dict[str, bytes | None] = {}

    def get(self, name: str, default: Any = None) -> Any:
        data = self._changes[name] if name in self._changes else self._stored.get(name)
        if data is None:
            return default
        value = decode_visible(data, self._now_ms)
        return default if value is ABSENT else value

    def set(self, name: str, value: Any, ttl: float | timedelta | None = None) -> None:
        """Keep a value; with ``ttl`` (seconds or timedelta) it is visible until batch time + ttl."""
        if type(name) is not str:
            raise InvalidKeyError(f"state name is {name!r}; names are strings")
        if ttl is None:
            self._changes[name] = encode_value(value)
        else:
            self._changes[name] = encode_expiring(value, self._now_ms + ttl_ms(ttl))

    def delete(self, name: str) -> None:
        """Forget a value; nothing happens if there is none."""
        self._changes[name] = None

    def exists(self, name: str) -> bool:
        """True also for a stored None."""
        data = self._changes[name] if name in self._changes else self._stored.get(name)
        return decode_visible(data, self._now_ms) is not ABSENT

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and values in order of the names."""
        for name in sorted({**self._stored, **self._changes}):
            data = self._changes[name] if name in self._changes else self._stored[name]
            value = decode_visible(data, self._now_ms)
            if value is not ABSENT:
                yield name, value

    def changed(self) -> list[tuple[str, bytes | None, bytes | None]]:
        """What differs from before, in order of the names: (name, new value, previous value)."""
        changes, stored = self._changes, self._stored
        if len(changes) == 1:
            ((name, value),) = changes.items()
            previous = stored.get(name)
            return [] if value == previous else [(name, value, previous)]
        found = [(name, value, stored.get(name)) for name, value in changes.items() if value != stored.get(name)]
        if len(found) > 1:
            found.sort(key=lambda change: change[0].encode())
        return found
