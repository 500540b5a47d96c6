"""Whole columns as Avro: byte for byte what fastavro writes, read back as they were; damage never passes."""

from __future__ import annotations

import contextlib
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as PlainDecimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelog_state.aggregation.avro import types
from changelog_state.aggregation.avro.record_codec import RecordCodec
from changelog_state.errors import ValueEncodingError

_CHARACTERS = (st.integers(0, 0xD7FF) | st.integers(0xE000, 0x10FFFF)).map(chr) | st.sampled_from("ab\0é")
_LONGS = (
    st.integers(-3, 3)
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(0, 63).flatmap(lambda bits: st.sampled_from([2**bits - 1, -(2**bits), 2**bits - 2, 1 - 2**bits]))
)
_FLOATS = st.floats(width=32, allow_nan=False) | st.just(float("nan"))
_DOUBLES = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENTS = st.integers(-(10**16), 10**16).map(lambda micros: _EPOCH + timedelta(microseconds=micros))

_SIMPLE: list[tuple[types.AvroType, st.SearchStrategy[Any]]] = [
    (types.LONG, _LONGS),
    (types.BOOLEAN, st.booleans()),
    (types.FLOAT, _FLOATS),
    (types.DOUBLE, _DOUBLES),
    (types.STRING, st.lists(_CHARACTERS, max_size=80).map("".join)),
    (types.BYTES, st.binary(max_size=80)),
    (types.DATE, st.dates(date(1, 1, 2), date(9999, 12, 30))),
    (types.TIMESTAMP, _MOMENTS),
    (types.LOCAL_TIMESTAMP, _MOMENTS.map(lambda moment: moment.replace(tzinfo=None))),
    (
        types.Decimal("decimal_38_3", 38, 3),
        st.integers(-(10**38) + 1, 10**38 - 1).map(
            lambda unscaled: PlainDecimal((unscaled < 0, _digits(unscaled), -3))
        ),
    ),
]
_Typed = tuple[types.AvroType, st.SearchStrategy[Any]]


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


def _nullable(typed: _Typed) -> _Typed:
    return types.Nullable(typed[0]), st.none() | typed[1]


def _array(typed: _Typed) -> _Typed:
    return types.Array(typed[0]), st.lists(typed[1], max_size=4)


def _record(fields: list[_Typed]) -> _Typed:
    """NOTE: Avro wants a name of its own for every record of a schema."""
    _record.count = getattr(_record, "count", 0) + 1  # type: ignore[attr-defined]
    named = {f"f{number}": field for number, field in enumerate(fields)}
    kind = types.Record(f"r{_record.count}", tuple(types.Field(n, t) for n, (t, _) in named.items()))  # type: ignore[attr-defined]
    return kind, st.fixed_dictionaries({name: values for name, (_, values) in named.items()})


def _once(fields: list[_Typed]) -> bool:
    """A schema may define a name only once, and fastavro wants a reference after that."""
    text = str([field[0].schema() for field in fields])
    return text.count("decimal_38_3") <= 1


_TYPED = st.recursive(
    st.sampled_from(_SIMPLE),
    lambda inner: (
        inner.filter(lambda typed: not isinstance(typed[0], types.Nullable)).map(_nullable)
        | inner.map(_array)
        | st.lists(inner, min_size=1, max_size=4).map(_record)
    ),
    max_leaves=6,
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[RecordCodec, list[dict[str, Any]]]:
    record, rows = draw(st.lists(_TYPED, min_size=1, max_size=5).filter(_once).map(_record))
    return RecordCodec(record), draw(st.lists(rows, max_size=12))


def columns_of(codec: RecordCodec, rows: list[dict[str, Any]]) -> list[pa.Array]:
    return [pa.array([row[field.name] for row in rows], field.type.arrow) for field in codec.record.fields]


def rows_of(codec: RecordCodec, columns: list[pa.Array]) -> list[dict[str, Any]]:
    names = [field.name for field in codec.record.fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*(c.to_pylist() for c in columns), strict=True)]


def exact(value: Any) -> Any:
    """A value that equals another one only if the types and the bits of floats are equal too."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value) if value == value else "nan"
    if isinstance(value, dict):
        return {name: exact(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [exact(inner) for inner in value]
    return type(value).__name__, value


@settings(deadline=None)
@given(tables())
def test_our_bytes_are_those_of_fastavro(table: tuple[RecordCodec, list[dict[str, Any]]]) -> None:
    codec, rows = table
    encoded = codec.encode(columns_of(codec, rows))
    assert encoded.type == pa.binary()
    assert encoded.to_pylist() == [codec.single.encode(row) for row in rows]


@settings(deadline=None)
@given(tables(), st.data())
def test_what_was_written_is_read_back(table: tuple[RecordCodec, list[dict[str, Any]]], data: st.DataObject) -> None:
    codec, rows = table
    start = data.draw(st.integers(0, len(rows)))
    encoded = codec.encode(columns_of(codec, rows)).slice(start)
    decoded = codec.decode(encoded)
    assert [column.type for column in decoded] == [field.type.arrow for field in codec.record.fields]
    assert exact(rows_of(codec, decoded)) == exact(rows[start:])


@settings(deadline=None)
@given(tables(), st.data())
def test_a_slice_is_written_like_a_column_of_its_own(
    table: tuple[RecordCodec, list[dict[str, Any]]], data: st.DataObject
) -> None:
    codec, rows = table
    start = data.draw(st.integers(0, len(rows)))
    sliced = [column.slice(start) for column in columns_of(codec, rows)]
    assert codec.encode(sliced).equals(codec.encode(columns_of(codec, rows[start:])))


@settings(deadline=None)
@given(tables().filter(lambda table: len(table[1]) > 0), st.data())
def test_a_value_cut_short_is_an_error(table: tuple[RecordCodec, list[dict[str, Any]]], data: st.DataObject) -> None:
    codec, rows = table
    values = codec.encode(columns_of(codec, rows)).to_pylist()
    row = data.draw(st.integers(0, len(rows) - 1))
    values[row] = values[row][: data.draw(st.integers(0, len(values[row]) - 1))]
    with pytest.raises(ValueEncodingError):
        codec.decode(pa.array(values, pa.binary()))


@settings(deadline=None)
@given(tables().filter(lambda table: len(table[1]) > 0), st.data(), st.binary(min_size=1, max_size=3))
def test_trailing_bytes_are_an_error(
    table: tuple[RecordCodec, list[dict[str, Any]]], data: st.DataObject, more: bytes
) -> None:
    codec, rows = table
    values = codec.encode(columns_of(codec, rows)).to_pylist()
    values[data.draw(st.integers(0, len(rows) - 1))] += more
    with pytest.raises(ValueEncodingError):
        codec.decode(pa.array(values, pa.binary()))


@settings(deadline=None)
@given(tables(), st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_any_bytes_are_values_or_an_error(
    table: tuple[RecordCodec, list[dict[str, Any]]], bodies: list[bytes]
) -> None:
    codec, _ = table
    with contextlib.suppress(ValueEncodingError):
        decoded = codec.decode(pa.array([codec.single.header + body for body in bodies], pa.binary()))
        written = codec.encode(decoded)
        assert codec.encode(codec.decode(written)).equals(written)


# --- other writers may split arrays into blocks, with or without the block's size


def _long(number: int) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


@settings(deadline=None)
@given(st.lists(st.lists(_LONGS, max_size=8), min_size=1, max_size=6), st.data())
def test_blocks_of_any_shape_are_read(lists: list[list[int]], data: st.DataObject) -> None:
    codec = RecordCodec(types.Record("r", (types.Field("items", types.Array(types.LONG)),)))
    values = []
    for items in lists:
        body, rest = b"", items
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            block, rest = b"".join(map(_long, rest[:size])), rest[size:]
            body += (_long(-size) + _long(len(block)) if data.draw(st.booleans()) else _long(size)) + block
        values.append(codec.single.header + body + b"\x00")
    assert codec.decode(pa.array(values, pa.binary()))[0].to_pylist() == lists


def test_a_value_of_another_schema_is_refused() -> None:
    codec = RecordCodec(types.Record("r", (types.Field("n", types.LONG),)))
    other = RecordCodec(types.Record("other", (types.Field("n", types.LONG),)))
    mixed = pa.concat_arrays([each.encode([pa.array([1])]) for each in (codec, other)])
    assert codec.wrote(mixed).to_pylist() == [True, False]
    with pytest.raises(ValueEncodingError, match=codec.single.fingerprint.hex()):
        codec.decode(mixed)
