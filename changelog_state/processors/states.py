"""Spark's three kinds of state, for the key that is being handled."""

# ruff: noqa: N802, N803 (Spark's own names)
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState

from changelog_state.errors import InvalidInputError
from changelog_state.processors.entry_keys import EntryKeys
from changelog_state.processors.pandas_rows import RowView
from changelog_state.processors.read_values import as_row
from changelog_state.processors.row_codec import RowCodec

if TYPE_CHECKING:
    from changelog_state.processors.handle import ProcessorHandle
    from changelog_state.state import collections

__all__ = ["ProcessorListState", "ProcessorMapState", "ProcessorValueState"]

Row = tuple[Any, ...]
_ROWS = (tuple, list, Mapping, np.ndarray)
_FLOATS = (float, np.floating)


class ProcessorValueState(ValueState):  # type: ignore[misc]
    def __init__(self, handle: ProcessorHandle, name: str, codec: RowCodec) -> None:
        self._handle = handle
        self._name = name
        self._codec = codec

    def exists(self) -> bool:
        return self._handle.state.exists(self._name)

    def get(self) -> Row | None:
        record = self._handle.state.get(self._name)
        return None if record is None else self._codec.values(record)

    def update(self, newValue: Row) -> None:
        self._handle.state.set(self._name, newValue)

    def clear(self) -> None:
        self._handle.state.delete(self._name)


class ProcessorListState(ListState):  # type: ignore[misc]
    def __init__(self, handle: ProcessorHandle, name: str, view: RowView, names: list[str]) -> None:
        self._handle = handle
        self._name = name
        self._view = view
        self._names = names

    def exists(self) -> bool:
        return bool(self._rows)

    def get(self) -> Iterator[Row]:
        """The rows as they are when the first one is taken."""
        yield from self._view(list(self._rows))

    def put(self, newState: list[Row]) -> None:
        rows = self._some(newState)
        self._rows.clear()
        self._rows.extend(rows)

    def appendValue(self, newState: Row) -> None:
        self._rows.append(newState)

    def appendList(self, newState: list[Row]) -> None:
        self._rows.extend(self._some(newState))

    def clear(self) -> None:
        self._rows.clear()

    @property
    def _rows(self) -> collections.ListState:
        return self._handle.state.list(self._name)

    def _some(self, given: Iterable[Any]) -> list[Any]:
        """pandas, through which Spark takes them, also takes plain values for rows of one column."""
        rows = self._rows_of(given)
        if not rows:
            raise InvalidInputError(
                f"list state {self._name!r} was given an empty list, which Spark's operator does not take either; "
                "call clear() to empty it"
            )
        if len(self._names) == 1:
            rows = [row if isinstance(row, _ROWS) else (row,) for row in rows]
        return [self._without_nan(row) if isinstance(row, _ROWS) else row for row in rows]

    def _without_nan(self, row: Any) -> list[Any]:
        """To pandas, NaN is no value, in a field of whatever type."""
        values = [row.get(name) for name in self._names] if isinstance(row, Mapping) else row
        return [None if isinstance(each, _FLOATS) and each != each else each for each in values]

    def _rows_of(self, given: Any) -> list[Any]:
        """Iterated over, a frame or a dict of columns gives their names: its rows are meant."""
        if not isinstance(given, (pd.DataFrame, Mapping)):
            return list(given)
        missing = [name for name in self._names if name not in given]
        if missing:
            raise InvalidInputError(
                f"list state {self._name!r} was given columns {list(given)}, without {missing} of its schema; give "
                "all of them, and None for what is not known"
            )
        frame = pd.DataFrame(given, columns=self._names).astype(object)
        return list(frame.where(frame.notna(), None).itertuples(index=False, name=None))


class ProcessorMapState(MapState):  # type: ignore[misc]
    def __init__(
        self,
        handle: ProcessorHandle,
        name: str,
        keys: EntryKeys,
        codec: RowCodec,
        key_view: RowView,
        value_view: RowView,
    ) -> None:
        self._handle = handle
        self._name = name
        self._keys = keys
        self._codec = codec
        self._key_view = key_view
        self._value_view = value_view

    def exists(self) -> bool:
        return bool(self._entries)

    def getValue(self, key: Row) -> Row | None:
        record = self._entries.get(self._keys.encode(key))
        return None if record is None else as_row(self._codec.schema, self._codec.values(record))

    def containsKey(self, key: Row) -> bool:
        return self._keys.encode(key) in self._entries

    def updateValue(self, key: Row, value: Row) -> None:
        self._entries[self._keys.encode(key)] = value

    def iterator(self) -> Iterator[tuple[Row, Row]]:
        """All entries as they are when the first one is taken, in the order of their keys."""
        for key, record in list(self._entries.items()):
            yield self._keys.decode(key), self._codec.values(record)

    def keys(self) -> Iterator[Row]:
        yield from self._key_view([self._keys.decode_raw(key) for key in self._entries.keys()])  # noqa: SIM118

    def values(self) -> Iterator[Row]:
        yield from self._value_view(list(self._entries.values()))

    def removeKey(self, key: Row) -> None:
        del self._entries[self._keys.encode(key)]

    def clear(self) -> None:
        self._entries.clear()

    @property
    def _entries(self) -> collections.MapState:
        return self._handle.state.map(self._name)
