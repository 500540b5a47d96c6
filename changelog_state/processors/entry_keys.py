"""Keys of a map state as keys of entries: readable from outside, and in their natural order.

A key of one column is the value itself, one of several columns is a tuple. Dates are integers, days, and so are
timestamps, microseconds, and decimals that fit into 64 bits. Null sorts first. Anything else is bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
)

from changelog_state.codec.avro import decode_value, encode_value
from changelog_state.errors import ConfigurationError
from changelog_state.processors.given_values import raw_row
from changelog_state.processors.read_values import values_of_row
from changelog_state.schemas.spark_types import schema_of_spark_type

__all__ = ["EntryKeys", "key_types"]

_MOST_DIGITS_OF_INT64: Final = 18
_NAN: Final = b"nan"
_NEGATIVE_ZERO: Final = b"-0.0"
"""Two floats that are keys of their own in Spark, but cannot be told, or ordered, among other floats."""


class EntryKeys:
    def __init__(self, schema: StructType, where: str) -> None:
        schema_of_spark_type(schema, where)  # which says what is wrong with it
        self.schema = schema
        self._raw = raw_row(schema, where)
        self._values = values_of_row(schema)
        self._names = schema.names
        self._parts = [_part(field, f"{field.name} of {where}") for field in schema.fields]

    def encode(self, key: Any) -> Any:
        raw = self._raw(key)
        parts = tuple([put(raw[name]) for name, (put, _) in zip(self._names, self._parts, strict=True)])
        return parts[0] if len(parts) == 1 else parts

    def decode(self, entry_key: Any) -> tuple[Any, ...]:
        return self._values(self.decode_raw(entry_key))

    def decode_raw(self, entry_key: Any) -> dict[str, Any]:
        parts = (entry_key,) if len(self._parts) == 1 else entry_key
        return {name: get(part) for name, (_, get), part in zip(self._names, self._parts, parts, strict=True)}


def key_types(schema: StructType) -> str:
    """What makes the bytes of a key: its columns' types. Their names do not, nor whether they may be null."""
    types = [field.dataType.simpleString() for field in schema.fields]
    return types[0] if len(types) == 1 else f"({', '.join(types)})"


Part = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _part(field: StructField, where: str) -> Part:
    put, get = _of_type(field.dataType, where)
    # No value of the type looks like this, and it sorts before them, or for bytes behind them.
    null: Any = "" if isinstance(field.dataType, BinaryType) or put is _packed else b""
    return (
        lambda raw: null if raw is None else put(raw),
        lambda part: None if part == null and type(part) is type(null) else get(part),
    )


def _of_type(data_type: DataType, where: str) -> Part:
    if isinstance(data_type, MapType):
        raise ConfigurationError(f"{where} is a map, which cannot be a key; use an array of structs, or a string")
    if isinstance(data_type, (FloatType, DoubleType)):
        return _float_to_part, _float_from_part
    if isinstance(data_type, DecimalType) and data_type.precision <= _MOST_DIGITS_OF_INT64:
        return _number, _digits
    if isinstance(data_type, (StructType, ArrayType, DecimalType)):
        return _packed, decode_value
    if isinstance(data_type, BooleanType):
        return bool, bool
    return _same, _same


def _same(value: Any) -> Any:
    return value


def _packed(value: Any) -> bytes:
    return encode_value(value)


def _number(digits: bytes) -> int:
    return int.from_bytes(digits, "big", signed=True)


def _digits(number: int) -> bytes:
    return number.to_bytes((abs(number).bit_length() + 8) // 8, "big", signed=True)


def _float_to_part(value: float) -> Any:
    if value != value:
        return _NAN
    return _NEGATIVE_ZERO if value == 0 and str(value)[0] == "-" else value


def _float_from_part(part: Any) -> float:
    return float(part.decode()) if isinstance(part, bytes) else part
