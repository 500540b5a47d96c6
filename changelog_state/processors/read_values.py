"""Stored fields as a processor gets them: the Python values that Spark's operator gives for each type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    Row,
    StructType,
    TimestampNTZType,
    TimestampType,
)

__all__ = ["as_row", "value_of", "values_of_row"]

_EXACT = Context(prec=100)


def values_of_row(schema: StructType) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """From a record to a tuple."""
    names = schema.names
    converts = [value_of(field.dataType) for field in schema.fields]
    if not any(converts):
        return lambda record: tuple([record[name] for name in names])
    pairs = list(zip(names, converts, strict=True))

    def convert(record: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(
            [record[name] if each is None or record[name] is None else each(record[name]) for name, each in pairs]
        )

    return convert


def as_row(schema: StructType, values: tuple[Any, ...]) -> Row:
    """With the fields' names."""
    row = Row(*values)
    row.__fields__ = list(schema.names)
    return row


def value_of(data_type: DataType) -> Callable[[Any], Any] | None:
    """For a value that is not None; without a function it stays as it is."""
    if isinstance(data_type, BinaryType):
        return bytearray
    if isinstance(data_type, (DateType, TimestampType, TimestampNTZType)):
        from_internal: Callable[[Any], Any] = data_type.fromInternal
        return from_internal
    if isinstance(data_type, DecimalType):
        scale = -data_type.scale
        return lambda digits: Decimal(int.from_bytes(digits, "big", signed=True)).scaleb(scale, _EXACT)
    if isinstance(data_type, StructType):
        values = values_of_row(data_type)
        return lambda record: as_row(data_type, values(record))
    if isinstance(data_type, ArrayType):
        element = value_of(data_type.elementType)
        return None if element is None else lambda items: [_or_none(element, each) for each in items]
    if isinstance(data_type, MapType):
        value = value_of(data_type.valueType)
        return None if value is None else lambda found: {name: _or_none(value, each) for name, each in found.items()}
    return None


def _or_none(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)
