"""fastavro reads what we write, we read what fastavro writes, and damage never passes for a value."""

from __future__ import annotations

import contextlib
import struct
from io import BytesIO
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from changelog_state.codec.avro import JSON_CODEC, JSON_SCHEMA, decode_value, encode_value
from changelog_state.errors import ValueEncodingError

SCHEMA = fastavro.parse_schema(JSON_SCHEMA)
HEADER = JSON_CODEC.header

_CHARACTERS = (st.integers(0, 0xD7FF) | st.integers(0xE000, 0x10FFFF)).map(chr) | st.sampled_from("ab\0é")
_TEXTS = st.lists(_CHARACTERS, max_size=100).map("".join)
_INTEGERS = st.integers(-300, 300) | st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**200), 2**200)
_FLOATS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
_SCALARS = st.none() | st.booleans() | _INTEGERS | _FLOATS | st.floats() | _TEXTS | st.binary(max_size=100)
values = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXTS.map(lambda t: t[:5]), inner, max_size=5),
    max_leaves=12,
)


def exact(value: Any) -> Any:
    """A value that equals another one only if types and float bits are equal too."""
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, list):
        return ("list", [exact(item) for item in value])
    if isinstance(value, dict):
        return ("dict", [(key, exact(item)) for key, item in value.items()])
    return (type(value).__name__, value)


def to_fastavro(value: Any) -> dict[str, Any]:
    """A value as fastavro wants it: the record Json, with the union's branch named."""
    if isinstance(value, bool):
        return {"value": ("boolean", value)}
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return {"value": ("long", value)}
        size = value.bit_length() // 8 + 1
        while size > 1 and _fits(value, size - 1):
            size -= 1
        return {"value": ("changelog_state.BigInt", {"value": value.to_bytes(size, "big", signed=True)})}
    if isinstance(value, list):
        return {"value": ("array", [to_fastavro(item) for item in value])}
    if isinstance(value, dict):
        return {"value": ("map", {key: to_fastavro(item) for key, item in value.items()})}
    names = {type(None): "null", float: "double", str: "string", bytes: "bytes"}
    return {"value": (names[type(value)], value)}


def _fits(value: int, size: int) -> bool:
    return -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1)


def from_fastavro(record: dict[str, Any]) -> Any:
    value = record["value"]
    if isinstance(value, list):
        return [from_fastavro(item) for item in value]
    if isinstance(value, dict):
        if isinstance(value.get("value"), bytes):  # BigInt; in a map it would be a record
            return int.from_bytes(value["value"], "big", signed=True)
        return {key: from_fastavro(item) for key, item in value.items()}
    return value


def fastavro_read(data: bytes) -> Any:
    body = BytesIO(data[len(HEADER) :])
    value = from_fastavro(fastavro.schemaless_reader(body, SCHEMA, None))
    assert not body.read()
    return value


def fastavro_write(value: Any) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, SCHEMA, to_fastavro(value))
    return HEADER + body.getvalue()


@given(values)
def test_round_trip(value: Any) -> None:
    assert exact(decode_value(encode_value(value))) == exact(value)


@given(values)
def test_fastavro_reads_what_we_write(value: Any) -> None:
    assert exact(fastavro_read(encode_value(value))) == exact(value)


@given(values)
def test_our_bytes_are_those_of_fastavro(value: Any) -> None:
    data = fastavro_write(value)
    assert encode_value(value) == data
    assert exact(decode_value(data)) == exact(value)


# --- other writers may split arrays and maps into blocks, with or without the block's size


def _long(number: int) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


def write_in_blocks(value: Any, draw: Any) -> bytes:
    if isinstance(value, list):
        items = [write_in_blocks(item, draw) for item in value]
        return b"\x0c" + _blocks(items, draw)
    if isinstance(value, dict):
        items = [_long(len(k.encode())) + k.encode() + write_in_blocks(v, draw) for k, v in value.items()]
        return b"\x0e" + _blocks(items, draw)
    return fastavro_write(value)[len(HEADER) :]


def _blocks(items: list[bytes], draw: Any) -> bytes:
    out = b""
    while items:
        size = draw(st.integers(1, len(items)))
        block, items = b"".join(items[:size]), items[size:]
        out += (_long(-size) + _long(len(block)) if draw(st.booleans()) else _long(size)) + block
    return out + b"\x00"


@given(values, st.data())
def test_blocks_of_any_shape_are_read(value: Any, data: st.DataObject) -> None:
    written = HEADER + write_in_blocks(value, data.draw)
    assert exact(fastavro_read(written)) == exact(value)
    assert exact(decode_value(written)) == exact(value)


# --- damage


@given(values, st.data())
def test_a_value_cut_short_is_an_error(value: Any, data: st.DataObject) -> None:
    written = encode_value(value)
    cut = data.draw(st.integers(0, len(written) - 1))
    try:
        decoded = decode_value(written[:cut])
    except ValueEncodingError:
        return
    raise AssertionError(f"read {decoded!r} from {cut} of {len(written)} bytes")


@given(values, st.binary(min_size=1, max_size=3))
def test_trailing_bytes_are_an_error(value: Any, more: bytes) -> None:
    try:
        decoded = decode_value(encode_value(value) + more)
    except ValueEncodingError:
        return
    raise AssertionError(f"read {decoded!r} in spite of trailing bytes")


@given(st.lists(st.sampled_from([0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 0x80, 0xFF]) | st.integers(0, 255)).map(bytes))
def test_any_bytes_are_a_value_or_an_error(body: bytes) -> None:
    with contextlib.suppress(ValueEncodingError):
        value = decode_value(HEADER + body)
        assert exact(decode_value(encode_value(value))) == exact(value)
