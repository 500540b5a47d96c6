"""Avro schemas as declarations: dicts, JSON, files, names; what they take and what their values come back as."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from changelog_state.codec.avro import SingleObjectCodec
from changelog_state.errors import ConfigurationError, ValueEncodingError
from changelog_state.schemas.declared import codec_for

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "items", "type": {"type": "array", "items": {"type": "fixed", "name": "Sku", "size": 2}}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}, "default": "OPEN"},
        {"name": "size", "type": ["null", "float", "string"], "default": None},
        {"name": "class", "type": {"type": "map", "values": "State"}, "default": {}},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}
VALUE = {
    "id": 5,
    "items": [b"ab"],
    "state": "PAID",
    "size": 0.5,
    "class": {"x": "OPEN"},
    "next": {"id": 1, "items": [], "state": "OPEN", "size": "s", "class": {}, "next": None},
}


def no_schema(fingerprint: bytes) -> str:
    raise AssertionError(f"nobody should ask for schema {fingerprint.hex()}")


def test_a_dict_is_a_schema() -> None:
    codec, fastavro = codec_for(ORDER, name="order"), SingleObjectCodec(ORDER)
    assert (codec.fingerprint, codec.schema_json) == (fastavro.fingerprint, fastavro.schema_json)
    assert codec.encode(VALUE) == fastavro.encode(VALUE)
    assert codec.decode(fastavro.encode(VALUE), no_schema) == VALUE
    copy = pickle.loads(pickle.dumps(codec))
    assert copy.decode(copy.encode(VALUE), no_schema) == VALUE


def test_a_schema_may_come_from_a_file_or_as_text(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    expected = codec_for(ORDER, name="order").schema_json
    for declared in (path, str(path), json.dumps(ORDER)):
        assert codec_for(declared, name="order").schema_json == expected
    assert codec_for("long", name="total").schema_json == '"long"'
    assert codec_for(["null", "long"], name="total").encode(None)[10:] == b"\x00"


@pytest.mark.parametrize("left_out", ["state", "size", "class", "next"])
def test_fields_with_a_default_may_be_left_out(left_out: str) -> None:
    codec = codec_for(ORDER, name="order")
    given = {name: value for name, value in VALUE.items() if name != left_out}
    default = {"state": "OPEN", "size": None, "class": {}, "next": None}[left_out]
    assert codec.decode(codec.encode(given), no_schema) == {**VALUE, left_out: default}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "order.id is None of type NoneType, but int is declared"),
        ({"id": 2**31}, "order.id is 2147483648 of type int, .* does not fit into 32 bits"),
        (
            {"items": [b"a"]},
            r"order.items\[0\] is b'a' .*fixed shop.Sku of 2 bytes is declared \(1 bytes are not 2\)",
        ),
        ({"state": "LOST"}, r"order.state is 'LOST' .*enum shop.State \(OPEN, PAID\) is declared"),
        ({"size": b"x"}, "order.size is b'x' of type bytes, but null or float or string is declared"),
        ({"unknown": 1}, "order has 'unknown', which record shop.Order does not declare"),
        ({"next": {"id": 1}}, r"order.next has no items \(declared in record shop.Order, without a default\)"),
    ],
)
def test_values_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueEncodingError, match=f"variable order does not take this value: {message}"):
        codec_for(ORDER, name="order").encode({**VALUE, **change})


@pytest.mark.parametrize("value", [7, None, [], ("shop.Order", {})])
def test_what_is_no_record_at_all(value: Any) -> None:
    with pytest.raises(ValueEncodingError, match="variable order does not take this value"):
        codec_for(ORDER, name="order").encode(value)


@pytest.mark.parametrize(
    ("kind", "logical", "value", "stored"),
    [
        ("long", {"logicalType": "timestamp-micros"}, datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=UTC), None),
        (
            "long",
            {"logicalType": "timestamp-millis"},
            datetime(2020, 1, 1, 0, 0, 0, 1999, tzinfo=UTC),
            datetime(2020, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
        ),
        ("long", {"logicalType": "local-timestamp-micros"}, datetime(1969, 1, 1, 0, 0, 0, 1), None),
        ("long", {"logicalType": "local-timestamp-millis"}, datetime(2020, 1, 1), None),
        ("long", {"logicalType": "time-micros"}, time(23, 0, 0, 1), None),
        ("int", {"logicalType": "time-millis"}, time(23, 0, 1), None),
        ("int", {"logicalType": "date"}, date(1, 1, 1), None),
        ("string", {"logicalType": "uuid"}, UUID(int=7), None),
        ("bytes", {"logicalType": "decimal", "precision": 5, "scale": 2}, Decimal("-123.45"), None),
        ("bytes", {"logicalType": "decimal", "precision": 5}, 12345, Decimal(12345)),
        ("bytes", {"logicalType": "decimal", "precision": 5, "scale": 2}, Decimal("1.5"), Decimal("1.50")),
        ("long", {"logicalType": "of-another-world"}, 5, None),
    ],
)
def test_logical_types(kind: str, logical: dict[str, Any], value: Any, stored: Any) -> None:
    codec = codec_for({"type": kind, **logical}, name="v")
    found = codec.decode(codec.encode(value), no_schema)
    assert found == (value if stored is None else stored)
    assert type(found) is type(value if stored is None else stored)
    # And others read the same out of it; what fastavro makes of a value without a zone depends on the machine.
    assert SingleObjectCodec({"type": kind, **logical}).decode(codec.encode(value)) == found


def test_a_decimal_of_fixed_size() -> None:
    schema = {"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 1}
    codec = codec_for(schema, name="v")
    assert codec.encode(Decimal("-0.1"))[10:] == b"\xff\xff\xff"
    assert codec.decode(codec.encode(Decimal("-0.1")), no_schema) == Decimal("-0.1")


@pytest.mark.parametrize("value", [datetime(2020, 1, 1, tzinfo=UTC), "2020", 5])
def test_a_local_timestamp_takes_no_zone_and_no_number(value: Any) -> None:
    with pytest.raises(ValueEncodingError, match="local-timestamp-micros is declared"):
        codec_for({"type": "long", "logicalType": "local-timestamp-micros"}, name="v").encode(value)


def test_a_type_may_be_wrapped_in_another() -> None:
    wrapped = {
        "type": {
            "type": "record",
            "name": "A",
            "fields": [
                {"name": "x", "type": {"type": {"type": "string"}}},
                {"name": "z", "type": {"type": {"type": "int"}, "logicalType": "date"}, "default": 0},
                {"name": "y", "type": {"type": "array", "items": {"type": ["null", {"type": {"type": "long"}}]}}},
            ],
        }
    }
    plain = {
        "type": "record",
        "name": "A",
        "fields": [
            {"name": "x", "type": {"type": "string"}},
            {"name": "z", "type": {"type": "int", "logicalType": "date"}, "default": 0},
            {"name": "y", "type": {"type": "array", "items": ["null", {"type": "long"}]}},
        ],
    }
    value = {"x": "a", "z": date(2020, 1, 1), "y": [None, 1]}
    for declared in (wrapped, json.dumps(wrapped)):
        codec = codec_for(declared, name="v")
        assert codec.decode(codec.encode(value), no_schema) == value
        assert codec.schema_json == codec_for(plain, name="v").schema_json


@pytest.mark.parametrize(
    "declared",
    [
        "lnog",
        {"type": {"type": "recrod"}},
        {"type": "record", "name": "A", "fields": 5},
        {"type": "record", "name": "A", "fields": [5]},
        "missing.avsc",
        "{",
        {"type": "recrod"},
        {"type": "record", "name": "a b", "fields": []},
        {"type": "record", "name": "A", "fields": [{"name": "x y", "type": "int"}]},
        {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}] * 2},
        ["int", "int"],
        ["null", ["int"]],
        ["long", {"type": "long", "logicalType": "timestamp-micros"}],
        {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int", "default": "1"}]},
        {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int", "default": 2**40}]},
        {"type": "record", "name": "A", "fields": [{"name": "x", "type": "double", "default": "1.5"}]},
        {"type": "record", "name": "A", "fields": [{"name": "x", "type": "double", "default": True}]},
        {
            "type": "record",
            "name": "A",
            "fields": [
                {"name": "x", "type": {"type": "record", "name": "B", "fields": []}, "default": {"unknown": 1}},
            ],
        },
    ],
)
def test_schemas_that_are_none(declared: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"not valid|cannot be read"):
        codec_for(declared, name="v")


def test_damaged_values_are_an_error() -> None:
    codec = codec_for(ORDER, name="order")
    data = codec.encode(VALUE)
    for size in range(10, len(data)):
        with pytest.raises(
            ValueEncodingError, match="a stored value cannot be read: it is cut short; .*verify the store"
        ):
            codec.decode(data[:size], no_schema)
    with pytest.raises(ValueEncodingError, match="ends at byte"):
        codec.decode(data + b"\x00", no_schema)
    with pytest.raises(ValueEncodingError, match="not an Avro single object"):
        codec.decode(b"{}", no_schema)


def test_many_items_without_content_are_told_from_damage() -> None:
    codec = codec_for({"type": "array", "items": "null"}, name="v")
    nothing = [None] * 2**16
    assert codec.decode(codec.encode(nothing), no_schema) == nothing
    with pytest.raises(ValueEncodingError, match="more than 65536 items without content"):
        codec.encode([*nothing, None])
    with pytest.raises(ValueEncodingError, match="cannot be read: an array has 4611686018427387903 items"):
        codec.decode(codec.header + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00", no_schema)
