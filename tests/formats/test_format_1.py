"""Bytes that format version 1 has written must be read, and written, for as long as there is a version 1."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from changelog_state.codec import kinds
from changelog_state.codec.avro import JSON_CODEC, decode_value, encode_value
from changelog_state.codec.keys import KeyCodec, record_key, split_record_key

FORMAT: dict[str, Any] = json.loads((Path(__file__).parent / "format-1.json").read_text("utf-8"))


def from_json(value: Any) -> Any:
    """JSON has no bytes, no tuple and no NaN: they are written as {"$bytes": hex} and so on."""
    if isinstance(value, dict):
        if "$bytes" in value:
            return bytes.fromhex(value["$bytes"])
        if "$tuple" in value:
            return tuple(from_json(part) for part in value["$tuple"])
        if "$float" in value:
            return float(value["$float"])
        return {name: from_json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [from_json(part) for part in value]
    return value


def test_the_file_is_about_this_version() -> None:
    assert FORMAT["format"] == 1
    assert len(FORMAT["keys"]) >= 15
    assert len(FORMAT["values"]) >= 15


@pytest.mark.parametrize("kind", FORMAT["kinds"])
def test_kinds(kind: str) -> None:
    assert getattr(kinds, kind) == bytes.fromhex(FORMAT["kinds"][kind])


@pytest.mark.parametrize("example", FORMAT["keys"], ids=lambda example: example["meaning"])
def test_keys(example: dict[str, Any]) -> None:
    codec, key, data = (
        KeyCodec(tuple(example["types"])),
        from_json(example["key"]),
        bytes.fromhex(example["hex"]),
    )
    assert codec.decode(data) == (key, len(data))
    assert codec.encode(key) == data
    columns = [[part] for part in key] if isinstance(key, tuple) else [[key]]
    assert codec.encode_columns(columns) == [data]


@pytest.mark.parametrize("example", FORMAT["record_keys"], ids=lambda example: example["meaning"])
def test_record_keys(example: dict[str, Any]) -> None:
    codec, key, data = (
        KeyCodec(tuple(example["types"])),
        from_json(example["key"]),
        bytes.fromhex(example["hex"]),
    )
    kind = bytes.fromhex(FORMAT["kinds"][example["kind"]])
    assert split_record_key(codec, data) == (kind, key, example["name"].encode())
    assert record_key(kind, codec.encode(key), example["name"]) == data


def test_schema_of_values() -> None:
    assert json.loads(JSON_CODEC.schema_json) == FORMAT["value_schema"]
    assert JSON_CODEC.header == bytes.fromhex(FORMAT["value_header"])


@pytest.mark.parametrize("example", FORMAT["values"], ids=lambda example: example["meaning"])
def test_values(example: dict[str, Any]) -> None:
    value, data = from_json(example["value"]), bytes.fromhex(example["hex"])
    decoded = decode_value(data)
    if isinstance(value, float) and math.isnan(value):
        assert math.isnan(decoded)
    else:
        assert repr(decoded) == repr(value)  # tells 1 from True and 0.0 from -0.0
    assert encode_value(value) == data
