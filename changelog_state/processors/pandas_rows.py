"""Rows of lists, and keys and values of maps, as processors get them from pyspark 4.0: through pandas.

There, Spark's operator hands them over in a pandas frame, and a row is whatever the frame makes of it: one type for
all numbers of a row, NaN for null beside numbers, numpy's scalars beside other types, Timestamps with a zone, arrays.
Processors that were written for this get the same. Later versions hand over rows of lists as plain tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyspark
from pyspark.sql.pandas.types import to_arrow_type
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

from changelog_state.processors.read_values import value_of, values_of_row

__all__ = ["RawRow", "RowView", "list_view", "row_view"]

RawRow = Mapping[str, Any]
RowView = Callable[[Sequence[RawRow]], list[tuple[Any, ...]]]

_LISTS_THROUGH_PANDAS: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 1)
_ROWS_AT_ONCE: Final = 10_000
"""What Spark puts into one frame, by default. A null changes the types of all rows of its frame."""
_NUMBERS: Final[dict[type[DataType], type]] = {
    ByteType: np.int8,
    ShortType: np.int16,
    IntegerType: np.int32,
    LongType: np.int64,
    FloatType: np.float32,
    DoubleType: np.float64,
}


def list_view(schema: StructType, timezone: str, *, through_pandas: bool = _LISTS_THROUGH_PANDAS) -> RowView:
    """For the rows of lists."""
    if through_pandas:
        return row_view(schema, timezone)
    plain = values_of_row(schema)
    return lambda records: [plain(record) for record in records]


def row_view(schema: StructType, timezone: str) -> RowView:
    """A function from records, as they are written, to rows. ``timezone``: that of the Spark session."""
    names = schema.names
    columns = [_column(field.dataType, timezone) for field in schema.fields]

    def view(records: Sequence[RawRow]) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for start in range(0, len(records), _ROWS_AT_ONCE):
            chunk = records[start : start + _ROWS_AT_ONCE]
            arrays = [column([record[name] for record in chunk]) for name, column in zip(names, columns, strict=True)]
            found += _rows_of(arrays)
        return found

    return view


def _rows_of(columns: list[Any]) -> list[tuple[Any, ...]]:
    """As ``tuple(frame.iloc[number])`` for each row: much faster."""
    dtype = columns[0].dtype if len(columns) == 1 else _row_dtype(tuple(column.dtype for column in columns))
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return list(zip(*(column.astype(dtype).tolist() for column in columns), strict=True))
    return list(zip(*(list(column) for column in columns), strict=True))


@lru_cache(maxsize=256)
def _row_dtype(dtypes: tuple[Any, ...]) -> Any:
    """What a frame with such columns has as the type of one row."""
    columns = {str(number): pd.Series([None], dtype=object).astype(object) for number in range(len(dtypes))}
    for number, dtype in enumerate(dtypes):
        if dtype.kind != "O":
            columns[str(number)] = pd.Series(np.zeros(1, dtype="int64")).astype(dtype)
    return pd.DataFrame(columns).iloc[0].dtype


def _column(data_type: DataType, timezone: str) -> Callable[[list[Any]], Any]:
    """From values, as they are written, to an array of numpy's or pandas'."""
    kind = type(data_type)
    if kind in _NUMBERS:
        return _numbers(_NUMBERS[kind])
    if isinstance(data_type, BooleanType):
        return lambda values: np.array(values, dtype=object if None in values else bool)
    if isinstance(data_type, (StringType, BinaryType)):
        return _objects
    if isinstance(data_type, (DateType, DecimalType)):
        convert = value_of(data_type)
        assert convert is not None
        return lambda values: _objects([None if value is None else convert(value) for value in values])
    if isinstance(data_type, TimestampType):
        return lambda values: pd.DatetimeIndex(np.array(values, dtype="M8[us]"), tz="UTC").tz_convert(timezone)
    if isinstance(data_type, TimestampNTZType):
        return lambda values: pd.DatetimeIndex(np.array(values, dtype="M8[us]"))
    return _nested(data_type, timezone)


def _numbers(number: type) -> Callable[[list[Any]], Any]:
    whole = issubclass(number, np.integer)

    def convert(values: list[Any]) -> Any:
        if None not in values:
            return np.array(values, dtype=number)
        return np.array(values, dtype=np.float64 if whole else number)  # None becomes NaN

    return convert


def _objects(values: list[Any]) -> Any:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _nested(data_type: DataType, timezone: str) -> Callable[[list[Any]], Any]:
    arrow_type = _in_zone(to_arrow_type(data_type), timezone)
    prepare = _for_arrow(data_type)

    def convert(values: list[Any]) -> Any:
        return pa.array([None if value is None else prepare(value) for value in values], arrow_type).to_pandas()

    return convert


def _in_zone(arrow_type: pa.DataType, timezone: str) -> pa.DataType:
    """Timestamps in the session's zone, as Spark sends them."""
    if pa.types.is_timestamp(arrow_type):
        return arrow_type if arrow_type.tz is None else pa.timestamp("us", timezone)
    if pa.types.is_struct(arrow_type):
        return pa.struct([field.with_type(_in_zone(field.type, timezone)) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        return pa.map_(_in_zone(arrow_type.key_type, timezone), _in_zone(arrow_type.item_type, timezone))
    if pa.types.is_list(arrow_type):
        return pa.list_(_in_zone(arrow_type.value_type, timezone))
    return arrow_type


def _for_arrow(data_type: DataType) -> Callable[[Any], Any]:
    """From a value, as it is written, to what Arrow takes for its type."""
    if isinstance(data_type, DecimalType):
        convert = value_of(data_type)
        assert convert is not None
        return convert
    if isinstance(data_type, StructType):
        fields = [(field.name, _or_none(_for_arrow(field.dataType))) for field in data_type.fields]
        return lambda record: {name: convert(record[name]) for name, convert in fields}
    if isinstance(data_type, ArrayType):
        element = _or_none(_for_arrow(data_type.elementType))
        return lambda items: [element(item) for item in items]
    if isinstance(data_type, MapType):
        value = _or_none(_for_arrow(data_type.valueType))
        return lambda found: [(name, value(each)) for name, each in found.items()]
    return lambda value: value


def _or_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)
