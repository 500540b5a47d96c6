"""Lists and maps of one key: entries are read when they are needed, and written one by one."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from changelog_state.codec.entries import (
    MAP_HEADER,
    Bounds,
    decode_entry_key,
    encode_entry_key,
    list_header,
    read_list_header,
)
from changelog_state.codec.expiring import read_expiring
from changelog_state.codec.kinds import DATA
from changelog_state.errors import InvalidInputError, InvalidKeyError
from changelog_state.store.base import next_prefix

if TYPE_CHECKING:
    from changelog_state.state.handle import State
    from changelog_state.state.variables import Variable

__all__ = ["UNKNOWN", "Collection", "ListState", "MapState", "Previous", "Unknown"]

_PAGE = 500


class Unknown(Enum):
    """Instead of the previous value of a record that was written without having been read."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
Previous: TypeAlias = bytes | Unknown | None


class Collection:
    """What both have in common: entries by their encoded keys, stored ones under those that are written."""

    kind = ""

    def __init__(self, state: State, name: str, variable: Variable | None) -> None:
        self._state = state
        self._context = state._context
        self.name = name
        self._codec = self._context.codec_of(name)
        self._ttl = self._context.lifetime_of(name)
        self._prefix = DATA + state._key + name.encode() + b"\0"
        self._key_type = variable.type if variable is not None and self.kind == "map" else None
        self.written: dict[bytes, bytes | None] = {}
        """What the batch makes of entries, by their encoded keys; None deletes."""
        self.read: dict[bytes, bytes | None] = {}
        """What is known of the stored ones; None: there is none."""
        self._complete = state._header_before(name, self.kind) is None
        self._expires = self._ttl is not None or read_expiring(state._stored.get(name, b"")) is not None
        """Whether there may be entries that expire: also those from before it was declared like this."""

    @property
    def is_changed(self) -> bool:
        return bool(self.written)

    def prefetched(self, entries: list[tuple[bytes, bytes]], complete: bool) -> None:
        """Entries that were read along with the key: the first ones, or all."""
        self.read.update(entries)
        self._complete = self._complete or complete

    @property
    def is_empty(self) -> bool:
        return next(self._range(refresh=False), None) is None

    def settle(self) -> None:
        """The function is through with it: nothing is left of a collection that has become empty."""

    def record_key(self, entry: bytes) -> bytes:
        return self._prefix + entry

    def changes(self) -> Iterator[tuple[bytes, bytes | None, Previous]]:
        """What differs from before: (what the record key ends with, new value, previous value)."""
        suffix = self._prefix[len(DATA) + len(self._state._key) :]
        for entry, data in self.written.items():
            previous: Previous = self.read.get(entry, UNKNOWN)
            if previous is None and self._expires:
                previous = UNKNOWN  # one that has expired may be there still
            if previous != data:
                yield suffix + entry, data, previous

    # -- one entry ---------------------------------------------------------------------------------------

    def _get(self, entry: bytes) -> bytes | None:
        """The encoded value as it is visible now."""
        data = self.written[entry] if entry in self.written else self._stored(entry)
        if data is None:
            return None
        value = self._context.visible(data)
        if value is not None and self._expires:
            self._refresh(entry, data)
        return value

    def _refresh(self, entry: bytes, data: bytes) -> None:
        renewed = self._context.refreshed(data)
        if renewed is not None:
            self._put(entry, renewed)

    def _stored(self, entry: bytes) -> bytes | None:
        if entry not in self.read:
            self.read[entry] = None if self._complete else self._context.reads.read([self.record_key(entry)])[0]
        return self.read[entry]

    def _set(self, entry: bytes, value: Any) -> None:
        self._put(entry, self._context.encode(self._codec, value, self._ttl))

    def _put(self, entry: bytes, data: bytes) -> None:
        self.written[entry] = data
        self._keep_header()

    def _delete(self, entry: bytes) -> None:
        self.written[entry] = None

    def _keep_header(self) -> None:
        raise NotImplementedError  # what a header holds is a matter of the kind

    def _write_header(self, header: bytes | None) -> None:
        if header is not None and self._expires:
            header = self._context.outliving(header, self._ttl, self._state._data(self.name))
        self._state._changes[self.name] = header

    # -- many --------------------------------------------------------------------------------------------

    def _range(
        self, start: bytes = b"", end: bytes | None = None, *, refresh: bool = True
    ) -> Iterator[tuple[bytes, bytes]]:
        """Entries of [start, end) as they are visible now, in order of their keys.

        They may be changed and deleted meanwhile, and reading some may change others: each is given as it is when its
        turn comes. New ones are not met.
        """
        written = {
            entry: data for entry, data in self.written.items() if start <= entry and (end is None or entry < end)
        }
        stored = (entry for entry in self._stored_range(start, end) if entry[0] not in written)
        for entry, found in heapq.merge(stored, sorted(written.items())):
            data = self.written.get(entry, found)
            value = None if data is None else self._context.visible(data)
            if value is not None and data is not None:
                if refresh and self._expires:
                    self._refresh(entry, data)
                yield entry, value

    def _stored_range(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        if self._complete:
            known = sorted((entry, data) for entry, data in self.read.items() if data is not None)
            yield from ((e, data) for e, data in known if start <= e and (end is None or e < end))
            return
        whole = start == b"" and end is None
        bound = next_prefix(self._prefix) if end is None else self.record_key(end)
        assert bound is not None
        while True:
            page = self._context.reads.scan(self.record_key(start), bound, _PAGE)
            entries = [(record_key[len(self._prefix) :], data) for record_key, data in page]
            self.read.update(entries)
            yield from entries
            if len(entries) < _PAGE:
                break
            start = entries[-1][0] + b"\0"
        self._complete = self._complete or whole

    def _decode(self, value: bytes) -> Any:
        return self._context.decode(self._codec, value, self.name)

    def clear(self) -> None:
        """Forget all entries."""
        for entry, _ in list(self._stored_range(b"", None)):
            self.written[entry] = None
        for entry in self.written:
            self.written[entry] = None
        self._write_header(None)

    def snapshot(self) -> Any:
        """As a plain list or dict."""
        raise NotImplementedError


class MapState(Collection):
    """A map in order of its keys. Writing needs no read; ``len`` and going over all of it read all of it."""

    kind = "map"

    def __getitem__(self, key: Any) -> Any:
        value = self._get(self._entry(key))
        if value is None:
            raise KeyError(key)
        return self._decode(value)

    def get(self, key: Any, default: Any = None) -> Any:
        value = self._get(self._entry(key))
        return default if value is None else self._decode(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._set(self._entry(key), value)

    def __delitem__(self, key: Any) -> None:
        """Nothing happens if there is none."""
        self._delete(self._entry(key))

    def pop(self, key: Any, default: Any = None) -> Any:
        entry = self._entry(key)
        value = self._get(entry)
        self._delete(entry)
        return default if value is None else self._decode(value)

    def update(self, entries: Any) -> None:
        for key, value in dict(entries).items():
            self[key] = value

    def __contains__(self, key: Any) -> bool:
        return self._get(self._entry(key)) is not None

    def items(self, start: Any = None, end: Any = None, limit: int | None = None) -> Iterator[tuple[Any, Any]]:
        """Keys of [start, end) with their values, in order."""
        lower = b"" if start is None else self._entry(start)
        upper = None if end is None else self._entry(end)
        for entry, value in islice(self._range(lower, upper), limit):
            yield decode_entry_key(entry), self._decode(value)

    def keys(self, start: Any = None, end: Any = None, limit: int | None = None) -> Iterator[Any]:
        return (key for key, _ in self.items(start, end, limit))

    def values(self, start: Any = None, end: Any = None, limit: int | None = None) -> Iterator[Any]:
        return (value for _, value in self.items(start, end, limit))

    def __iter__(self) -> Iterator[Any]:
        return self.keys()

    def __bool__(self) -> bool:
        return next(self._range(), None) is not None

    def __len__(self) -> int:
        return sum(1 for _ in self._range())

    def settle(self) -> None:
        if self._state._kind_of(self.name) != self.kind:
            return  # it was deleted, and there may be something else of that name since
        if self.written and not any(self.written.values()) and self.is_empty:
            self._write_header(None)

    def snapshot(self) -> dict[Any, Any]:
        return dict(self.items())

    def __repr__(self) -> str:
        return f"MapState({self.name!r})"

    def _entry(self, key: Any) -> bytes:
        if self._key_type is not None and type(key) is not self._key_type:
            raise InvalidKeyError(
                f"key of map {self.name!r} is {key!r}, a {type(key).__name__}; it was declared with "
                f"{self._key_type.__name__} keys"
            )
        return encode_entry_key(key)

    def _keep_header(self) -> None:
        if self._expires or self._state._data(self.name) is None:
            self._write_header(MAP_HEADER)


class ListState(Collection):
    """A list. Appending and ``len`` need no read, unless its entries expire."""

    kind = "list"

    def __init__(self, state: State, name: str, variable: Variable | None) -> None:
        super().__init__(state, name, variable)
        header = state._header_before(name, self.kind)
        self._bounds = read_list_header(header) if header is not None else Bounds(0, 0)

    def append(self, value: Any) -> None:
        number = self._bounds.next
        self._bounds = self._bounds._replace(next=number + 1)
        entry = encode_entry_key(number)
        self.read.setdefault(entry, None)  # no such number was used before
        self._set(entry, value)

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)

    def __len__(self) -> int:
        if not self._expires:
            return self._bounds.next - self._bounds.first
        return sum(1 for _ in self._range())

    def __iter__(self) -> Iterator[Any]:
        return (self._decode(value) for _, value in self._range())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._slice(index)
        value = self._get(self._place(index))
        assert value is not None, "a place is that of a visible entry"
        return self._decode(value)

    def _slice(self, index: slice) -> list[Any]:
        if self._expires:
            return list(self)[index]
        places = range(*index.indices(len(self)))
        if not places:
            return []
        first = self._bounds.first + min(places)
        entries = self._range(encode_entry_key(first), encode_entry_key(first + max(places) - min(places) + 1))
        found = [self._decode(value) for _, value in entries]
        return found[:: places.step] if places.step > 0 else found[::-1][:: -places.step]

    def __setitem__(self, index: int, value: Any) -> None:
        self._set(self._place(index), value)

    def popleft(self) -> Any:
        """Take away the oldest, and return it."""
        entry = self._place(0)
        value = self._get(entry)
        assert value is not None, "a place is that of a visible entry"
        self._drop_oldest(entry)
        return self._decode(value)

    def trim(self, newest: int) -> None:
        """Keep only so many of the newest."""
        if newest < 0:
            raise InvalidInputError(f"a list cannot be trimmed to {newest} entries; give 0 or more")
        for entry in self._oldest(len(self) - newest):
            self._drop_oldest(entry)

    def clear(self) -> None:
        super().clear()
        self._bounds = Bounds(0, 0)

    def __bool__(self) -> bool:
        return len(self) > 0

    def snapshot(self) -> list[Any]:
        return list(self)

    def __repr__(self) -> str:
        return f"ListState({self.name!r})"

    def _oldest(self, number: int) -> list[bytes]:
        if not self._expires:
            return [encode_entry_key(self._bounds.first + place) for place in range(number)]
        return [entry for entry, _ in islice(self._range(), max(0, number))]

    def _drop_oldest(self, entry: bytes) -> None:
        self._delete(entry)
        self._bounds = self._bounds._replace(first=decode_entry_key(entry) + 1)
        self._keep_header()

    def _place(self, index: int) -> bytes:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"list {self.name!r} has {size} entries, asked for number {index}")
        number = index if index >= 0 else index + size
        if not self._expires:
            return encode_entry_key(self._bounds.first + number)
        return next(islice(self._range(), number, None))[0]

    def _keep_header(self) -> None:
        empty = self._bounds.first == self._bounds.next
        self._write_header(None if empty else list_header(self._bounds))
