"""Rows that are kept in state: what the built-in schema cannot hold is kept as what it can.

timestamps, intervals      microseconds (since 1970, in UTC)
dates, decimals            as text: "2024-02-29", "12.50"
maps                       a list of [key, value]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import types as spark

from changelog_state.errors import ConfigurationError

__all__ = ["StoredRows", "epoch_us"]

Convert = Callable[[Any], Any]

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH: Final = datetime(1970, 1, 1)
_AS_THEY_ARE: Final = (
    spark.NullType,
    spark.BooleanType,
    spark.IntegralType,
    spark.FloatType,
    spark.DoubleType,
    spark.StringType,
    spark.BinaryType,
)


def epoch_us(time: datetime) -> int:
    """Microseconds since 1970. A naive time is UTC."""
    return (time - (_NAIVE_EPOCH if time.tzinfo is None else _EPOCH)) // _MICROSECOND


class StoredRows:
    """Both ways, for rows with the columns of a Spark schema."""

    def __init__(self, schema: spark.StructType) -> None:
        self._schema = schema
        self.columns = tuple(schema.fieldNames())
        found = {field.name: _converters(field.dataType, field.name) for field in schema.fields}
        self._converters = {name: both for name, both in found.items() if both is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredRows, (self._schema,)

    def to_stored(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The columns that are not null."""
        stored = {name: row[name] for name in self.columns if row.get(name) is not None}
        for name, (to_stored, _) in self._converters.items():
            if name in stored:
                stored[name] = to_stored(stored[name])
        return stored

    def to_row(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """All columns. A column that was not there when the row was stored is null."""
        row = {name: stored.get(name) for name in self.columns}
        for name, (_, to_row) in self._converters.items():
            if row[name] is not None:
                row[name] = to_row(row[name])
        return row


def _converters(kind: spark.DataType, where: str) -> tuple[Convert, Convert] | None:
    """To what is stored and back; None: it is stored as it is."""
    if isinstance(kind, _AS_THEY_ARE):
        return None
    for known, both in _SIMPLE.items():
        if isinstance(kind, known):
            return both
    if isinstance(kind, spark.ArrayType):
        return _of_lists(_converters(kind.elementType, where))
    if isinstance(kind, spark.StructType):
        inner = StoredRows(kind)
        return inner.to_stored, inner.to_row
    if isinstance(kind, spark.MapType):
        return _of_maps(_converters(kind.keyType, where), _converters(kind.valueType, where))
    raise ConfigurationError(f"column {where!r} is of type {kind.simpleString()}, which cannot be kept; cast it")


_SIMPLE: Final[dict[type[spark.DataType], tuple[Convert, Convert]]] = {
    spark.TimestampType: (epoch_us, lambda us: _EPOCH + us * _MICROSECOND),
    spark.TimestampNTZType: (epoch_us, lambda us: _NAIVE_EPOCH + us * _MICROSECOND),
    spark.DayTimeIntervalType: (lambda length: length // _MICROSECOND, lambda us: us * _MICROSECOND),
    spark.DateType: (date.isoformat, date.fromisoformat),
    spark.DecimalType: (str, Decimal),
}


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _of_lists(inner: tuple[Convert, Convert] | None) -> tuple[Convert, Convert]:
    """Always copies: a function may change its row, and what is stored must not change with it."""
    if inner is None:
        return list, list
    there, back = map(_or_none, inner)
    return lambda items: list(map(there, items)), lambda items: list(map(back, items))


def _of_maps(keys: tuple[Convert, Convert] | None, values: tuple[Convert, Convert] | None) -> tuple[Convert, Convert]:
    (key_there, key_back), (there, back) = (map(_or_none, each or (_same, _same)) for each in (keys, values))
    return (
        lambda entries: [[key_there(key), there(value)] for key, value in _items(entries)],
        lambda entries: [(key_back(key), back(value)) for key, value in entries],
    )


def _items(entries: Any) -> Any:
    """Arrow gives a map as a list of pairs."""
    return entries.items() if isinstance(entries, Mapping) else entries


def _same(value: Any) -> Any:
    return value
