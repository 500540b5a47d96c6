"""Avro types, each with the Arrow type that it is here, and with how whole columns of it are written and read.

    int                   int32                      varints
    long, timestamps      int64, timestamp[us]       varints
    date                  date32                     varints
    boolean               bool                       one byte
    float, double         float32, float64           4 or 8 bytes
    decimal               decimal128                 16 bytes, big-endian (an Avro fixed)
    string, bytes         string, binary             length, then the bytes
    nullable              its type, with nulls       0 and nothing, or 2 and the value
    array                 list                       number of items, the items, 0
    record                struct                     its fields

A column is written as *pieces* (see ``pieces.py``): the bytes of a value are its pieces', one behind the other. Where
a column has no value, because what is around it is null, its pieces are null, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.avro.cursor import Cursor
from changelog_state.aggregation.avro.pieces import Mask, join_pieces, offsets_of, validity, wide_piece
from changelog_state.aggregation.avro.varints import read_longs, varint_piece

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DATE",
    "DOUBLE",
    "FLOAT",
    "INT",
    "LOCAL_TIMESTAMP",
    "LONG",
    "STRING",
    "TIMESTAMP",
    "Array",
    "AvroType",
    "Decimal",
    "Field",
    "Nullable",
    "Record",
    "spread",
]

_BLOCK_END: Final = pa.scalar(b"\x00", pa.binary())
_DECIMAL_BYTES: Final = 16
# A union is [null, type]; its branch is written as a long.
_NULL_BRANCH: Final = 0x00
_VALUE_BRANCH: Final = 0x02


class AvroType(ABC):
    arrow: pa.DataType
    """What a column of this type is in memory."""

    @abstractmethod
    def schema(self) -> Any:
        """The type in an Avro schema."""

    @abstractmethod
    def write(self, column: pa.Array) -> list[pa.Array]:
        """The pieces of each value; ``column`` has nulls only where nothing is to be written."""

    @abstractmethod
    def read(self, cursor: Cursor) -> pa.Array:
        """The next value at each position, which moves behind it."""


@dataclass(frozen=True)
class _Number(AvroType):
    """Written as a long, whatever it stands for."""

    arrow: pa.DataType
    storage: pa.DataType
    name: str
    logical_type: str | None = None

    def schema(self) -> Any:
        return self.name if self.logical_type is None else {"type": self.name, "logicalType": self.logical_type}

    def write(self, column: pa.Array) -> list[pa.Array]:
        numbers = _filled(column.cast(self.storage), 0).cast(pa.int64())
        return [varint_piece(numbers.to_numpy(), validity(column))]

    def read(self, cursor: Cursor) -> pa.Array:
        numbers = read_longs(cursor)
        if self.storage != pa.int64():
            limits = np.iinfo(self.storage.to_pandas_dtype())
            cursor.refuse_if((numbers < limits.min) | (numbers > limits.max), f"a {self.name} has too many bits")
        return pa.array(numbers).cast(self.storage).cast(self.arrow)


@dataclass(frozen=True)
class _Real(AvroType):
    arrow: pa.DataType
    name: str
    width: int

    def schema(self) -> Any:
        return self.name

    def write(self, column: pa.Array) -> list[pa.Array]:
        return [wide_piece(_filled(column, 0.0).to_numpy(), self.width, validity(column))]

    def read(self, cursor: Cursor) -> pa.Array:
        words = cursor.words()
        cursor.advance(self.width)
        return pa.array(words.view(np.float64) if self.width == 8 else words.astype(np.uint32).view(np.float32))


@dataclass(frozen=True)
class _Boolean(AvroType):
    arrow: pa.DataType = field(default_factory=pa.bool_)

    def schema(self) -> Any:
        return "boolean"

    def write(self, column: pa.Array) -> list[pa.Array]:
        data = _filled(column, False).to_numpy(zero_copy_only=False).view(np.uint8)
        return [wide_piece(data, 1, validity(column))]

    def read(self, cursor: Cursor) -> pa.Array:
        data = cursor.bytes()
        cursor.advance(1)
        cursor.refuse_if(data > 1, "a boolean is neither 0 nor 1")
        return pa.array(data.view(np.bool_))


@dataclass(frozen=True)
class Decimal(AvroType):
    """As wide as Arrow has it, so that it needs no step per value either."""

    name: str
    precision: int
    scale: int

    @property
    def arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def schema(self) -> Any:
        return {
            "type": "fixed",
            "name": self.name,
            "size": _DECIMAL_BYTES,
            "logicalType": "decimal",
            "precision": self.precision,
            "scale": self.scale,
        }

    def write(self, column: pa.Array) -> list[pa.Array]:
        begin = column.offset * _DECIMAL_BYTES
        little = np.frombuffer(column.buffers()[1], np.uint8, len(column) * _DECIMAL_BYTES, begin)
        big = little.reshape(-1, _DECIMAL_BYTES)[:, ::-1]
        return [wide_piece(big, _DECIMAL_BYTES, validity(column))]

    def read(self, cursor: Cursor) -> pa.Array:
        high, low = cursor.words().byteswap(), cursor.words(8).byteswap()
        cursor.advance(_DECIMAL_BYTES)
        little = np.stack((low, high), axis=1)
        return pa.Array.from_buffers(self.arrow, len(cursor), [None, pa.py_buffer(little)])


@dataclass(frozen=True)
class _Text(AvroType):
    arrow: pa.DataType
    name: str

    def schema(self) -> Any:
        return self.name

    def write(self, column: pa.Array) -> list[pa.Array]:
        content = column.cast(pa.binary())
        lengths = _filled(pc.binary_length(content), 0).to_numpy().astype(np.int64)
        return [varint_piece(lengths, validity(column)), content]

    def read(self, cursor: Cursor) -> pa.Array:
        lengths = read_longs(cursor)
        cursor.refuse_if((lengths < 0) | (lengths > cursor.remaining()), f"it is cut short within a {self.name}")
        begins = cursor.positions
        cursor.advance(lengths)
        offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
        np.cumsum(lengths, out=offsets[1:])
        places = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(cursor.data[places])]
        content = pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
        if self.arrow == pa.binary():
            return content
        try:
            return content.cast(self.arrow)
        except pa.ArrowInvalid:
            valid = [_is_utf8(value) for value in content.to_pylist()]
            cursor.refuse_if(~np.array(valid), "a string is not UTF-8")
            raise


@dataclass(frozen=True)
class Nullable(AvroType):
    """The union of null and a type."""

    inner: AvroType

    @property
    def arrow(self) -> pa.DataType:
        return self.inner.arrow

    def schema(self) -> Any:
        return ["null", self.inner.schema()]

    def write(self, column: pa.Array) -> list[pa.Array]:
        valid = validity(column)
        if valid is None:
            branches = np.full(len(column), _VALUE_BRANCH, dtype=np.uint8)
        else:
            branches = np.where(valid, np.uint8(_VALUE_BRANCH), np.uint8(_NULL_BRANCH))
        return [wide_piece(branches, 1, None), *self.inner.write(column)]

    def read(self, cursor: Cursor) -> pa.Array:
        branches = cursor.bytes()
        cursor.advance(1)
        present = branches == _VALUE_BRANCH
        if present.all():
            return self.inner.read(cursor)
        cursor.refuse_if(~present & (branches != _NULL_BRANCH), "a union has neither its first nor its second branch")
        rows = np.flatnonzero(present)
        part = cursor.some(rows)
        values = self.inner.read(part)
        cursor.rejoin(rows, part)
        return spread(values, present)


@dataclass(frozen=True)
class Array(AvroType):
    items: AvroType

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.items.arrow)

    def schema(self) -> Any:
        return {"type": "array", "items": self.items.schema()}

    def write(self, column: pa.Array) -> list[pa.Array]:
        """The items of a list lie one behind the other, also when encoded: they are cut at the lists' ends."""
        counts = _filled(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
        # A null list must not have items of its own, as flatten() leaves them out.
        items = join_pieces(self.items.write(column.flatten())) if counts.any() else pa.array([], pa.binary())
        ends = np.zeros(len(column) + 1, dtype=np.int64)
        np.cumsum(counts, out=ends[1:])
        buffers = [None, pa.py_buffer(offsets_of(items)[ends]), items.buffers()[2]]
        content = pa.Array.from_buffers(pa.binary(), len(column), buffers)
        valid = validity(column)
        some = counts > 0
        closed = pa.array(np.full(len(column), True) if valid is None else valid)
        return [varint_piece(counts, some), content, pc.if_else(closed, _BLOCK_END, pa.scalar(None, pa.binary()))]

    def read(self, cursor: Cursor) -> pa.Array:
        """Item by item, all values together; then the items are brought into the order of the values."""
        counts = np.zeros(len(cursor), dtype=np.int64)
        left = np.zeros(len(cursor), dtype=np.int64)
        rows = np.arange(len(cursor))
        found_rows: list[npt.NDArray[np.int64]] = []
        found: list[pa.Array] = []
        while len(rows):
            part = cursor.some(rows)
            starting = np.flatnonzero(left[rows] == 0)
            if len(starting):
                block = part.some(starting)
                left[rows[starting]] = _block_sizes(block)
                part.rejoin(starting, block)
            going_on = np.flatnonzero(left[rows])
            items = part.some(going_on)
            found.append(self.items.read(items))
            found_rows.append(rows[going_on])
            part.rejoin(going_on, items)
            cursor.rejoin(rows, part)
            rows = rows[going_on]
            left[rows] -= 1
            counts[rows] += 1
        offsets = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        if not found:
            return pa.array([], self.arrow)
        order = np.argsort(np.concatenate(found_rows), kind="stable")
        return pa.ListArray.from_arrays(pa.array(offsets), pa.concat_arrays(found).take(pa.array(order)))


@dataclass(frozen=True)
class Field:
    name: str
    type: AvroType
    attributes: tuple[tuple[str, Any], ...] = ()
    """Further attributes of the field in the schema, which Avro leaves to its users."""


@dataclass(frozen=True)
class Record(AvroType):
    name: str
    fields: tuple[Field, ...]

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([(each.name, each.type.arrow) for each in self.fields])

    def schema(self) -> Any:
        fields = [{"name": each.name, "type": each.type.schema(), **dict(each.attributes)} for each in self.fields]
        return {"type": "record", "name": self.name, "fields": fields}

    def write(self, column: pa.Array) -> list[pa.Array]:
        valid = validity(column)
        columns = column.flatten()  # what is null here is null in them
        return [
            piece
            for each, values in zip(self.fields, columns, strict=True)
            for piece in _only(valid, each.type.write(values))
        ]

    def read(self, cursor: Cursor) -> pa.Array:
        return pa.StructArray.from_arrays(self.read_fields(cursor), fields=list(self.arrow))

    def read_fields(self, cursor: Cursor) -> list[pa.Array]:
        return [each.type.read(cursor) for each in self.fields]


INT: Final = _Number(pa.int32(), pa.int32(), "int")
LONG: Final = _Number(pa.int64(), pa.int64(), "long")
DATE: Final = _Number(pa.date32(), pa.int32(), "int", "date")
TIMESTAMP: Final = _Number(pa.timestamp("us", "UTC"), pa.int64(), "long", "timestamp-micros")
LOCAL_TIMESTAMP: Final = _Number(pa.timestamp("us"), pa.int64(), "long", "local-timestamp-micros")
BOOLEAN: Final = _Boolean()
FLOAT: Final = _Real(pa.float32(), "float", 4)
DOUBLE: Final = _Real(pa.float64(), "double", 8)
STRING: Final = _Text(pa.string(), "string")
BYTES: Final = _Text(pa.binary(), "bytes")


def spread(values: pa.Array, present: Mask) -> pa.Array:
    """The values where there are any, in order; null elsewhere."""
    places = np.cumsum(present) - 1
    return values.take(pa.array(places, mask=~present))


def _block_sizes(cursor: Cursor) -> npt.NDArray[np.int64]:
    """The number of items in the array block that begins; a negative one is followed by the block's bytes."""
    counts = read_longs(cursor)
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        part = cursor.some(sized)
        read_longs(part)
        cursor.rejoin(sized, part)
        counts[sized] = -counts[sized]
    cursor.refuse_if(counts < 0, "an array has a block of impossible size")
    return counts


def _only(valid: Mask | None, pieces: Sequence[pa.Array]) -> list[pa.Array]:
    if valid is None:
        return list(pieces)
    where = pa.array(valid)
    return [pc.if_else(where, piece, pa.scalar(None, pa.binary())) for piece in pieces]


def _filled(column: pa.Array, value: Any) -> pa.Array:
    return column.fill_null(value) if column.null_count else column


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
