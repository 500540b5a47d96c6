"""What a processor gives for the fields of a row, as what is written.

Spark's operator takes a value that does not fit for null, or cuts it, without a word: 1.5 in a field of whole
numbers, a number of too many bits, a row with too many values. Here these are errors. What is clearly meant is taken,
such as the int 1 in a field of doubles, or 1.0 in one of whole numbers.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from struct import Struct
from typing import Any, Final

import numpy as np
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from changelog_state.errors import ConfigurationError, ValueEncodingError

__all__ = ["Convert", "raw_of", "raw_row"]

Convert = Callable[[Any], Any]

_BITS: Final[dict[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_FLOAT: Final = Struct("<f")
_FLOATS: Final = (float, np.floating)
_NOT_NUMBERS: Final[tuple[Any, ...]] = (bool, np.timedelta64)
"""To ``isinstance`` they are integers."""
_NO_VALUES: Final = ("NaTType", "NAType")
"""pandas' other words for None."""


def raw_row(schema: StructType, where: str, *, more: bool = False) -> Callable[[Any], dict[str, Any]]:
    """From a tuple, list or row to a record. ``where``: what it is of, for the errors.

    ``more``: a dict may have other names, too, as Spark takes one inside of a row.
    """
    names, wanted = schema.names, len(schema.fields)
    fields = [
        _nullable(raw_of(field.dataType, f"{field.name} of {where}"), field.nullable, f"{field.name} of {where}")
        for field in schema.fields
    ]

    def by_name(given: Mapping[str, Any]) -> list[Any]:
        unknown = [] if more else [name for name in given if name not in names]
        if unknown:
            raise ValueEncodingError(
                f"{where} takes {', '.join(names)}, but was given a dict with {unknown}; correct the names, or leave "
                "these out"
            )
        return [given.get(name) for name in names]

    def convert(given: Any) -> dict[str, Any]:
        values = by_name(given) if isinstance(given, Mapping) else list(given)
        if len(values) != wanted:
            raise ValueEncodingError(
                f"{where} takes rows of {wanted} values ({', '.join(names)}), got {len(values)}: {given!r}; "
                "give a tuple with a value for each field"
            )
        return {name: field(value) for name, field, value in zip(names, fields, values, strict=True)}

    return convert


def raw_of(data_type: DataType, where: str) -> Convert:
    """For a value that is not None."""
    kind = type(data_type)
    if kind in _BITS:
        return _integer(_BITS[kind], where)
    if isinstance(data_type, (FloatType, DoubleType)):
        return _float(isinstance(data_type, FloatType), where)
    if isinstance(data_type, StringType):
        return _string(where)
    if isinstance(data_type, BooleanType):
        return _boolean(where)
    if isinstance(data_type, BinaryType):
        return _binary(where)
    if isinstance(data_type, DecimalType):
        return _decimal(data_type, where)
    if isinstance(data_type, (DateType, TimestampType, TimestampNTZType)):
        return _time(data_type, where)
    if isinstance(data_type, ArrayType):
        return _array(data_type, where)
    if isinstance(data_type, MapType):
        return _map(data_type, where)
    if isinstance(data_type, StructType):
        return _struct(data_type, where)
    raise ConfigurationError(
        f"{where} is of Spark's type {data_type.simpleString()}, which has no values to be stored; use the type that "
        "its values will have, or leave it out"
    )


def _nullable(convert: Convert, nullable: bool, where: str) -> Convert:
    def checked(value: Any) -> Any:
        raw = None if value is None or type(value).__name__ in _NO_VALUES else convert(value)
        if raw is None and not nullable:
            raise ValueEncodingError(f"{where} is {value}, but was declared as not null; give a value")
        return raw

    return checked


def _misfit(where: str, value: Any, wanted: str) -> ValueEncodingError:
    return ValueEncodingError(
        f"{where} is {value!r}, a {type(value).__name__}, which is no {wanted}; convert it, or change the state's "
        "schema"
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, _NOT_NUMBERS)


def _integer(bits: int, where: str) -> Convert:
    end = 1 << (bits - 1)

    def convert(value: Any) -> int | None:
        number: int = value
        if type(value) is not int:
            # pandas has whole numbers as floats where there is a null, or a float, beside them.
            if isinstance(value, _FLOATS):
                if value != value:
                    return None
                if not float(value).is_integer():
                    raise _misfit(where, value, "whole number")
            elif not _is_whole(value):
                raise _misfit(where, value, "whole number")
            number = int(value)
        if not -end <= number < end:
            raise ValueEncodingError(f"{where} is {number}, more than {bits} bits can hold; use a wider type")
        return number

    return convert


def _float(single: bool, where: str) -> Convert:
    def convert(value: Any) -> float:
        if not isinstance(value, _FLOATS) and not _is_whole(value):
            raise _misfit(where, value, "number")
        number = float(value)
        if not single:
            return number
        try:
            [rounded] = _FLOAT.unpack(_FLOAT.pack(number))
        except OverflowError as error:
            raise ValueEncodingError(f"{where} is {value}, more than a float can hold; use double") from error
        return float(rounded)

    return convert


def _string(where: str) -> Convert:
    def convert(value: Any) -> str:
        if isinstance(value, str):
            return str(value)
        if isinstance(value, (bool, np.bool_)):
            return "true" if value else "false"
        if _is_whole(value):
            return str(int(value))
        raise _misfit(where, value, "string")

    return convert


def _boolean(where: str) -> Convert:
    def convert(value: Any) -> bool:
        if not isinstance(value, (bool, np.bool_)):
            raise _misfit(where, value, "boolean")
        return bool(value)

    return convert


def _binary(where: str) -> Convert:
    def convert(value: Any) -> bytes:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, str):
            return value.encode()
        raise _misfit(where, value, "binary value")

    return convert


def _decimal(data_type: DecimalType, where: str) -> Convert:
    unit = Decimal(1).scaleb(-data_type.scale)
    # Quantizing fails if the digits before the point are too many for the precision.
    context = Context(prec=data_type.precision, rounding=ROUND_HALF_UP)
    exact = Context(prec=100)

    def convert(value: Any) -> bytes:
        if not isinstance(value, Decimal) and not _is_whole(value):
            raise _misfit(where, value, "decimal")
        try:
            number = Decimal(int(value)) if not isinstance(value, Decimal) else value
            unscaled = int(context.quantize(number, unit).scaleb(data_type.scale, exact))
        except (InvalidOperation, ValueError, OverflowError) as error:
            raise ValueEncodingError(
                f"{where} is {value}, which does not fit {data_type.simpleString()}; use a wider type"
            ) from error
        return unscaled.to_bytes((abs(unscaled).bit_length() + 8) // 8, "big", signed=True)

    return convert


def _time(data_type: DateType | TimestampType | TimestampNTZType, where: str) -> Convert:
    wanted = datetime.date if isinstance(data_type, DateType) else datetime.datetime
    to_internal: Any = data_type.toInternal  # as Spark does it: a naive timestamp is in this machine's zone

    def convert(value: Any) -> int:
        if isinstance(value, np.datetime64):
            value = value.astype("datetime64[us]").item()
        if hasattr(value, "to_pydatetime"):
            value = value.to_pydatetime(warn=False)
        if not isinstance(value, wanted):
            raise _misfit(where, value, data_type.simpleString())
        return int(to_internal(value))

    return convert


def _array(data_type: ArrayType, where: str) -> Convert:
    where = f"an element of {where}"
    element = _nullable(raw_of(data_type.elementType, where), data_type.containsNull, where)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise _misfit(where.removeprefix("an element of "), value, "list")
        return [element(each) for each in value]

    return convert


def _map(data_type: MapType, where: str) -> Convert:
    of_key, of_value = f"a key of {where}", f"a value of {where}"
    key = _nullable(raw_of(data_type.keyType, of_key), False, of_key)
    value = _nullable(raw_of(data_type.valueType, of_value), data_type.valueContainsNull, of_value)

    def convert(given: Any) -> Any:
        # pandas has a map's entries as a list of pairs.
        entries = given.items() if isinstance(given, Mapping) else given
        if not isinstance(given, (Mapping, list)):
            raise _misfit(where, given, "dict")
        return {key(name): value(each) for name, each in entries}

    return convert


def _struct(data_type: StructType, where: str) -> Convert:
    row = raw_row(data_type, where, more=True)

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, (tuple, list, Mapping)):
            raise _misfit(where, value, "row")
        return row(value)

    return convert
