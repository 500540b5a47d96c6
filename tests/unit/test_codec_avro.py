from __future__ import annotations

import collections
import datetime
import decimal
import enum
import math
import pickle
import struct
from typing import Any

import numpy as np
import pytest

from changelog_state.codec import avro
from changelog_state.codec.avro import (
    JSON_CODEC,
    SingleObjectCodec,
    decode_value,
    encode_value,
    fingerprint_of,
)
from changelog_state.codec.json_schema import MAX_DEPTH
from changelog_state.errors import ConfigurationError, ValueEncodingError

HEADER = bytes.fromhex("c301 32d186b05e133b5e")
RECORD = {
    "type": "record",
    "name": "Total",
    "namespace": "shop",
    "fields": [
        {"name": "count", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def crc_64_avro(data: bytes) -> int:
    """The algorithm as Avro's specification gives it."""
    empty = 0xC15D213AA4D7A795
    table = []
    for entry in range(256):
        for _ in range(8):
            entry = (entry >> 1) ^ (empty & -(entry & 1))
        table.append(entry)
    result = empty
    for byte in data:
        result = (result >> 8) ^ table[(result ^ byte) & 0xFF]
    return result


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


# --- the built-in schema


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (None, "00"),
        (False, "02 00"),
        (True, "02 01"),
        (0, "04 00"),
        (-1, "04 01"),
        (64, "04 8001"),
        (1722000000123, "04 f69196f39d64"),
        (2**63 - 1, "04 feffffffffffffffff01"),
        (-(2**63), "04 ffffffffffffffffff01"),
        (2**63, "10 12 008000000000000000"),
        (-(2**63) - 1, "10 12 ff7fffffffffffffff"),
        (-(2**71), "10 12 800000000000000000"),
        (1.5, "06 000000000000f83f"),
        ("", "08 00"),
        ("é", "08 04 c3a9"),
        (b"\x00\xff", "0a 04 00ff"),
        ([], "0c 00"),
        ([None, 1], "0c 04 00 0402 00"),
        ({}, "0e 00"),
        ({"a": 1}, "0e 02 02 61 0402 00"),
        ({"a": [{}]}, "0e 02 02 61 0c 02 0e 00 00 00"),
    ],
)
def test_bytes_of_a_value(value: Any, body: str) -> None:
    data = encode_value(value)
    assert data == HEADER + bytes.fromhex(body)
    decoded = decode_value(data)
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize("number", [-257, -256, 4095, 4096, 8191, 8192, 2**20, 2**21, 2**27, 2**28, 2**35])
def test_integers_at_the_edges_of_tables_and_chunks(number: int) -> None:
    for value in (number, -number, number - 1, ~number):
        assert decode_value(encode_value(value)) == value


def test_true_and_one_stay_apart() -> None:
    values = [1, True, 1.0, 0, False, 0.0, -0.0]
    for single in values:
        assert repr(decode_value(encode_value(single))) == repr(single)
    assert repr(decode_value(encode_value(values))) == repr(values)


@pytest.mark.parametrize("bits", [0x8000000000000000, 0x7FF8000000000001, 0xFFF8DEADBEEF0001, 0x7FF0000000000000])
def test_floats_are_kept_bit_by_bit(bits: int) -> None:
    number = struct.unpack("<d", struct.pack("<Q", bits))[0]
    for value in (number, [number]):
        decoded = decode_value(encode_value(value))
        decoded = decoded[0] if isinstance(decoded, list) else decoded
        assert struct.pack("<d", decoded) == struct.pack("<Q", bits)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, (2,)), [1, [2]]),
        (bytearray(b"a"), b"a"),
        (memoryview(b"abc")[1:], b"bc"),
        (np.int64(-5), -5),
        (np.int8(5), 5),
        (np.int64(10**12), 10**12),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float64(0.1), 0.1),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        ({np.str_("k"): np.int32(1)}, {"k": 1}),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(int, a=1), {"a": 1}),
        (Color.RED, "red"),
        (Level.HIGH, 3),
    ],
)
def test_relatives_of_the_plain_types_become_plain(value: Any, expected: Any) -> None:
    decoded = decode_value(encode_value(value))
    assert decoded == expected
    assert type(decoded) is type(expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, 2, 3, {1, 2}]}, r"value\['a'\]\[3\] is of type set; convert it to one of None, bool, int"),
        (datetime.date(2024, 1, 1), r"value is of type date"),
        ([decimal.Decimal(1)], r"value\[0\] is of type Decimal"),
        (np.timedelta64(1, "s"), r"value is of type timedelta64"),
        (np.datetime64(1, "s"), r"value is of type datetime64"),
        ([np.longdouble(1)], r"value\[0\] is of type longdouble"),
        (np.arange(3), r"value is of type ndarray"),
        (object, r"value is of type type"),
        ({"a": {1: "x"}}, r"value\['a'\] has a key of type int: 1; make it a str"),
        ({b"a": 1}, r"value has a key of type bytes: b'a'"),
        ({None: 1}, r"value has a key of type NoneType"),
        ({"a": ["\ud800"]}, r"value\['a'\]\[0\] is not valid Unicode: '\\ud800'; remove its lone surrogates"),
        ({"x": {"\ud800": 1}}, r"key '\\ud800' of value\['x'\] is not valid Unicode"),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_path(value: Any, message: str) -> None:
    with pytest.raises(ValueEncodingError, match=message):
        encode_value(value)


def nested(depth: int, make: Any) -> Any:
    value: Any = make(None)
    for _ in range(depth - 1):
        value = make(value)
    return value


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_depth_is_limited(make: Any) -> None:
    deepest = nested(MAX_DEPTH, make)
    assert decode_value(encode_value(deepest)) == deepest
    with pytest.raises(ValueEncodingError, match=rf"nested more than {MAX_DEPTH} deep"):
        encode_value(make(deepest))


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append({"again": endless})
    with pytest.raises(ValueEncodingError, match="contains itself") as caught:
        encode_value(endless)
    assert len(str(caught.value)) < 300


def test_bytes_that_are_nested_too_deeply_are_refused() -> None:
    data = HEADER + b"\x0c\x02" * 5000 + b"\x00"
    with pytest.raises(ValueEncodingError, match="nested too deeply"):
        decode_value(data)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "cut short"),
        ("04", "cut short"),
        ("04 80", "cut short"),
        ("06 00000000000000", "cut short"),
        ("08 04 61", "ends at byte 14 of 13"),
        ("08 01 61", "length is negative"),
        ("08 02 ff", "utf-8"),
        ("02 02", "2 is not a boolean"),
        ("12", "18 is not a branch"),
        ("03", "3 is not a branch"),
        ("00 00", "ends at byte 11 of 12"),
        ("04 02 00", "ends at byte 12 of 13"),
        ("04 ffffffffffffffffff02", "more than 64 bits"),
        ("04 ffffffffffffffffffff01", "more than 64 bits"),
        ("0c 02 00", "cut short"),
        ("0c feffffffffffffffff01 00", "cut short"),
        ("0e 02 02 61", "cut short"),
    ],
)
def test_damaged_values_are_an_error(body: str, reason: str) -> None:
    with pytest.raises(ValueEncodingError, match=f"a stored value cannot be read: .*({reason})"):
        decode_value(HEADER + bytes.fromhex(body))


def test_a_value_of_another_schema_is_an_error_with_both_fingerprints() -> None:
    other = SingleObjectCodec(RECORD)
    data = other.encode({"count": 1})
    found, expected = other.fingerprint.hex(), JSON_CODEC.fingerprint.hex()
    with pytest.raises(ValueEncodingError, match=f"written with schema {found}, but is read with {expected}"):
        decode_value(data)
    with pytest.raises(ValueEncodingError, match=f"written with schema {expected}, but is read with {found}"):
        other.decode(encode_value(1))


@pytest.mark.parametrize("data", [b"", b"\xc3", b"\xc3\x01abc", b"\xc3\x02" + bytes(9), b'{"a": 1}    '])
def test_bytes_without_an_avro_header_are_an_error(data: bytes) -> None:
    for read in (decode_value, fingerprint_of, SingleObjectCodec(RECORD).decode):
        with pytest.raises(ValueEncodingError, match="not an Avro single object"):
            read(data)


def test_the_json_codec_is_the_functions() -> None:
    data = JSON_CODEC.encode({"a": [1]})
    assert data == encode_value({"a": [1]})
    assert JSON_CODEC.decode(data) == {"a": [1]}
    assert JSON_CODEC.header == HEADER
    assert SingleObjectCodec(avro.JSON_SCHEMA).header == HEADER
    assert pickle.loads(pickle.dumps(JSON_CODEC)) is JSON_CODEC


# --- declared schemas


@pytest.mark.parametrize(
    ("schema", "expected"),
    [("null", 7195948357588979594), ("boolean", -6970731678124411036), ("long", -3434872931120570953)],
)
def test_fingerprints_of_the_avro_project(schema: Any, expected: int) -> None:
    # From Avro's own share/test/data/schema-tests.txt.
    assert SingleObjectCodec(schema).fingerprint == struct.pack("<q", expected)


def test_the_fingerprint_is_that_of_the_canonical_form() -> None:
    canonical = (
        '{"name":"shop.Total","type":"record","fields":'
        '[{"name":"count","type":"int"},{"name":"note","type":["null","string"]}]}'
    )
    codec = SingleObjectCodec(RECORD)
    assert codec.fingerprint == crc_64_avro(canonical.encode()).to_bytes(8, "little")
    assert codec.header == b"\xc3\x01" + codec.fingerprint
    assert fingerprint_of(codec.encode({"count": 1})) == codec.fingerprint


def test_a_declared_schema_round_trip() -> None:
    codec = SingleObjectCodec(RECORD)
    data = codec.encode({"count": 3, "note": "x"})
    assert data == codec.header + bytes.fromhex("06 02 02 78")
    assert codec.decode(data) == {"count": 3, "note": "x"}
    assert codec.decode(codec.encode({"count": 3})) == {"count": 3, "note": None}
    copy = pickle.loads(pickle.dumps(codec))
    assert copy.decode(data) == {"count": 3, "note": "x"}
    assert copy.schema_json == codec.schema_json
    assert '"default":null' in codec.schema_json


@pytest.mark.parametrize(
    "value",
    [
        {"count": 1.5},
        {"count": True},
        {"count": 2**31},
        {"count": "1"},
        {"count": None},
        {"note": "x"},
        {"count": 1, "unknown": 2},
        {"count": 1, "note": "\ud800"},
        {"count": 1, "note": 5},
        7,
        None,
    ],
)
def test_a_value_that_does_not_fit_its_schema_is_refused(value: Any) -> None:
    with pytest.raises(ValueEncodingError, match="does not fit its Avro schema"):
        SingleObjectCodec(RECORD).encode(value)


def test_damaged_values_of_a_declared_schema_are_an_error() -> None:
    codec = SingleObjectCodec(RECORD)
    data = codec.encode({"count": 300, "note": "abc"})
    for size in range(10, len(data)):
        with pytest.raises(ValueEncodingError, match="cannot be read"):
            codec.decode(data[:size])
    with pytest.raises(ValueEncodingError, match="ends at byte"):
        codec.decode(data + b"\x00")


@pytest.mark.parametrize("schema", [{"type": "recrod"}, {"type": "record", "fields": []}, {}, {"type": object()}])
def test_a_schema_that_is_none_is_a_configuration_error(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="an Avro schema is not valid"):
        SingleObjectCodec(schema)


def test_nan_is_a_value() -> None:
    assert math.isnan(decode_value(encode_value(math.nan)))
