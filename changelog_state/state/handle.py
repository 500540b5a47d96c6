"""``state`` in a user's function: one key's named values, with reads that see the function's own writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from changelog_state.codec.avro import JSON_CODEC, decode_value, encode_value
from changelog_state.codec.entries import is_header, name_suffix
from changelog_state.codec.expiring import read_expiring
from changelog_state.codec.kinds import TIMER
from changelog_state.codec.timers import TimerTime, decode_timer
from changelog_state.durations import Duration, PointInTime, point_ms, to_datetime
from changelog_state.errors import ConfigurationError, InvalidInputError, InvalidKeyError, ValueEncodingError
from changelog_state.state.collections import Collection, ListState, MapState, Previous
from changelog_state.state.context import StateContext
from changelog_state.state.timers import KeyTimers
from changelog_state.state.ttl import Clock, Ttl, ttl_of
from changelog_state.state.variables import List, Map, Value, Variable, by_name
from changelog_state.store.base import next_prefix

__all__ = ["State", "declared", "state_class"]

_JSON_HEADER = JSON_CODEC.header
_PAGE = 500
_C = TypeVar("_C", bound=Collection)

# Inside of the class, "list" is a method.
Changes: TypeAlias = list[tuple[str, bytes | None, bytes | None]]
Entries: TypeAlias = list[tuple[bytes, bytes]]
EntryChanges: TypeAlias = list[tuple[bytes, bytes | None, Previous]]


class State:
    """Values are taken and given by value: changing a list that came from ``get`` needs a ``set`` to count."""

    __slots__ = ("_changes", "_collections", "_context", "_key", "_stored", "_timers")

    def __init__(self, stored: dict[str, bytes], context: StateContext, key: bytes = b"") -> None:
        self._stored = stored
        self._context = context
        self._key = key
        self._changes: dict[str, bytes | None] = {}
        self._collections: dict[str, Collection] | None = None
        self._timers: KeyTimers | None = None

    # -- values ------------------------------------------------------------------------------------------

    def get(self, name: str, default: Any = None) -> Any:
        data = self._changes[name] if name in self._changes else self._stored.get(name)
        if data is None:
            return self._missing(name, default)
        if self._context.is_plain and data.startswith(_JSON_HEADER):
            return decode_value(data)
        return self._read(name, data, default)

    def set(self, name: str, value: Any, ttl: Duration | Ttl | None = None) -> None:
        """Keep a value; with ``ttl`` (seconds, a timedelta, words, or a ``Ttl``) it is visible until that is over."""
        if type(name) is not str:
            raise InvalidKeyError(f"state name is {name!r}; names are strings")
        context = self._context
        if ttl is None and context.is_plain and self._collections is None:
            stored = self._stored.get(name)
            if stored is None or stored.startswith(_JSON_HEADER):  # not a list, whose entries would be left behind
                self._changes[name] = encode_value(value)
                return
        self._refuse_collection(name)
        lifetime = context.lifetime_of(name) if ttl is None else _lifetime(ttl)
        self._changes[name] = context.encode(context.codec_of(name), value, lifetime)

    def delete(self, name: str) -> None:
        """Forget a value; nothing happens if there is none."""
        found = self._found_collection(name)
        if found is not None:
            found.clear()
        else:
            self._changes[name] = None

    def exists(self, name: str) -> bool:
        """True also for a stored None."""
        found = self._found_collection(name)
        return self._visible(name) is not None if found is None else not found.is_empty

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and values in order of the names."""
        for name in sorted({**self._stored, **self._changes}):
            data = self._data(name)
            if data is not None and self.exists(name):
                yield name, self._read(name, data, None)

    # -- collections -------------------------------------------------------------------------------------

    def list(self, name: str) -> ListState:
        """The list of this name; it exists as long as it has entries."""
        return self._collection(name, ListState)

    def map(self, name: str) -> MapState:
        """The map of this name; it exists as long as it has entries."""
        return self._collection(name, MapState)

    # -- timers and time ---------------------------------------------------------------------------------

    def set_timer(self, at: PointInTime, name: str = "", clock: Clock | None = None) -> None:
        """Have ``on_timer`` called once when the time has come. A key has one timer of a name: this may move it.

        ``at``: a datetime (a naive one is UTC), or seconds since 1970. ``clock``: "event" compares with the
        watermark, "processing" with batch time.
        """
        if self._context.timer_clock is None:
            raise ConfigurationError(
                "a timer was set, but nobody handles timers; give on_timer= a function (windows have on_close=)"
            )
        clock = clock or self._context.timer_clock
        if clock not in ("event", "processing"):
            raise ConfigurationError(f"clock of a timer is {clock!r}; use 'processing' or 'event'")
        if clock == "event" and not self._context.has_event_time:
            raise ConfigurationError(
                "a timer by event time needs to know when rows happened; give event_time= with the column that has it"
            )
        name_suffix(name)
        self._key_timers().change(name, TimerTime(point_ms(at, "time of a timer"), clock == "event"))

    def delete_timer(self, name: str = "") -> None:
        """Nothing happens if there is none."""
        self._key_timers().change(name, None)

    def timers(self) -> dict[str, datetime]:
        """All timers of this key, by their names. Reads them from the store."""
        prefix = TIMER + self._key
        found: dict[str, TimerTime | None] = {
            key[len(prefix) :].decode(): decode_timer(data) for key, data in self._scan(prefix)
        }
        if self._timers is not None:
            found |= self._timers.changes
        return {name: to_datetime(time.at_ms) for name, time in sorted(found.items()) if time is not None}

    @property
    def batch_time(self) -> datetime:
        """When this batch was first begun: the same in a replay."""
        return to_datetime(self._context.now_ms)

    @property
    def watermark(self) -> datetime | None:
        """Up to where event time had come before this batch; None before the first rows."""
        return None if self._context.watermark_ms is None else to_datetime(self._context.watermark_ms)

    def clear(self) -> None:
        """Forget everything of this key, its timers too."""
        for name in {**self._stored, **self._changes}:
            self.delete(name)
        for name in self.timers():
            self.delete_timer(name)

    # -- for those who run the function ------------------------------------------------------------------

    def changed(self) -> Changes:
        """What differs from before, in order of the names: (name, new value, previous value)."""
        changes, stored = self._changes, self._stored
        for collection in (self._collections or {}).values():
            collection.settle()
        if len(changes) == 1:
            ((name, value),) = changes.items()
            previous = stored.get(name)
            return [] if value == previous else [(name, value, previous)]
        found = [(name, value, stored.get(name)) for name, value in changes.items() if value != stored.get(name)]
        if len(found) > 1:
            found.sort(key=lambda change: change[0].encode())
        return found

    def changed_entries(self) -> EntryChanges:
        """The same for entries of lists and maps, by what their record keys end with, in no order."""
        return [change for each in (self._collections or {}).values() for change in each.changes()]

    def _prefetched(self, name: str, entries: Entries, complete: bool) -> None:
        """Entries of a list or map that were read along with the key: the first ones, or all."""
        found = self._found_collection(name)
        if found is not None:
            found.prefetched(entries, complete)

    # -- inside ------------------------------------------------------------------------------------------

    def _data(self, name: str) -> bytes | None:
        return self._changes[name] if name in self._changes else self._stored.get(name)

    def _visible(self, name: str) -> bytes | None:
        """The encoded value, without its time."""
        data = self._data(name)
        return None if data is None else self._context.visible(data)

    def _kind_of(self, name: str) -> str | None:
        """ "list" or "map", if it is one that is not over."""
        data = self._data(name)
        if data is None or data.startswith(_JSON_HEADER):
            return None
        value = self._context.visible(data)
        return None if value is None else is_header(value)

    def _header_before(self, name: str, kind: str) -> bytes | None:
        """The stored header of a collection of this kind, be it expired."""
        data = self._stored.get(name)
        header = None if data is None else _unwrapped(data)
        return header if header is not None and is_header(header) == kind else None

    def _missing(self, name: str, default: Any) -> Any:
        variable = self._context.variables.get(name)
        return variable.missing() if default is None and isinstance(variable, Value) else default

    def _read(self, name: str, data: bytes, default: Any) -> Any:
        context = self._context
        value = context.visible(data)
        if value is None:
            return self._missing(name, default)
        kind = is_header(value)
        if kind is not None:
            found = self.list(name) if kind == "list" else self.map(name)
            return self._missing(name, default) if found.is_empty else found.snapshot()
        renewed = context.refreshed(data)
        if renewed is not None:
            self._changes[name] = renewed
        return context.decode(context.codec_of(name), value, name)

    def _collection(self, name: str, kind: type[_C]) -> _C:
        if self._collections is None:
            self._collections = {}
        found = self._collections.get(name)
        if found is not None and not isinstance(found, kind):
            raise InvalidInputError(f"{name!r} is used as a {found.kind} and as a {kind.kind}; use two names")
        if found is None or name in self._changes:  # which may be a value by now
            value = self._visible(name)
            if value is not None and is_header(value) != kind.kind:
                raise InvalidInputError(
                    f"{name!r} is asked for as a {kind.kind}, but is stored as "
                    f"a {is_header(value) or 'plain value'}; use another name, or delete it first"
                )
        if found is None:
            name_suffix(name)
            found = self._collections[name] = kind(self, name, self._context.variables.get(name))
        return found

    def _found_collection(self, name: str) -> Collection | None:
        kind = self._kind_of(name)
        return None if kind is None else self.list(name) if kind == "list" else self.map(name)

    def _refuse_collection(self, name: str) -> None:
        if self._found_collection(name) is not None or isinstance(self._context.variables.get(name), (List, Map)):
            raise InvalidInputError(
                f"{name!r} is a list or map and cannot be set as a whole; use state.list() or state.map(), "
                "or another name"
            )

    def _key_timers(self) -> KeyTimers:
        if self._timers is None:
            self._timers = KeyTimers()
        return self._timers

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        start, end = prefix, next_prefix(prefix)
        assert end is not None
        while True:
            page = self._context.reads.scan(start, end, _PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            start = page[-1][0] + b"\0"


def declared(variables: Any) -> Mapping[str, Variable]:
    """The declarations by their names, checked."""
    return by_name(variables, [name for name in dir(State) if not name.startswith("_")])


def state_class(variables: Mapping[str, Variable]) -> type[State]:
    """``State`` with these variables as attributes."""
    return _state_class(tuple((name, type(variable)) for name, variable in variables.items()))


@lru_cache(maxsize=64)
def _state_class(variables: tuple[tuple[str, type[Variable]], ...]) -> type[State]:
    if not variables:
        return State
    accessors: dict[Any, Callable[[str], property]] = {
        Value: _value_property,
        List: _list_property,
        Map: _map_property,
    }
    body = {name: accessors[kind](name) for name, kind in variables}
    return type("State", (State,), {"__slots__": (), "__doc__": State.__doc__, **body})


def _value_property(name: str) -> property:
    return property(
        lambda state: state.get(name), lambda state, value: state.set(name, value), lambda state: state.delete(name)
    )


def _list_property(name: str) -> property:
    return property(lambda state: state.list(name))


def _map_property(name: str) -> property:
    return property(lambda state: state.map(name))


def _lifetime(ttl: Duration | Ttl) -> Ttl | None:
    try:
        return ttl_of(ttl)
    except ConfigurationError as error:
        raise ValueEncodingError(str(error)) from error


def _unwrapped(data: bytes) -> bytes:
    expiring = read_expiring(data)
    return data if expiring is None else expiring.value
