"""The same for what state has beside plain values: times, timers, lists and maps, declared types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from changelog_state.codec.avro import decode_value, encode_value
from changelog_state.codec.entries import (
    MAP_HEADER,
    Bounds,
    decode_entry_key,
    encode_entry_key,
    is_header,
    list_header,
    read_list_header,
)
from changelog_state.codec.expiring import encode_expiring, read_expiring
from changelog_state.codec.timed import EVENT_EXPIRING_CODEC, EXPIRING_CODEC, REFRESHED_CODEC
from changelog_state.codec.timers import TimerTime, decode_timer, encode_timer
from changelog_state.schemas.declared import codec_for
from changelog_state.schemas.plain_values import decode_plain
from changelog_state.store.due_index import index_key, parse_index_key
from tests.formats.test_format_1 import from_json

FORMAT: dict[str, Any] = json.loads((Path(__file__).parent / "format-1-state.json").read_text("utf-8"))


def examples(section: str) -> Any:
    assert FORMAT["format"] == 1
    return pytest.mark.parametrize("example", FORMAT[section], ids=lambda example: example["hex"][:40])


@examples("expiring")
def test_values_with_a_time(example: dict[str, Any]) -> None:
    data = bytes.fromhex(example["hex"])
    found = read_expiring(data)
    assert found is not None
    assert found[:2] == (example["expires_ms"], example["by_event_time"])
    assert found.lives_ms == example.get("lives_ms")
    assert decode_value(found.value) == example["value"]
    value = encode_value(example["value"])
    times = {name: example.get(name) for name in ("by_event_time", "lives_ms")}
    assert encode_expiring(value, example["expires_ms"], **times) == data
    [codec] = [each for each in (EXPIRING_CODEC, EVENT_EXPIRING_CODEC, REFRESHED_CODEC) if each.header == data[:10]]
    assert codec.decode(data)["value"] == value, "as any reader of Avro reads it"


@examples("timers")
def test_timers(example: dict[str, Any]) -> None:
    data, time = bytes.fromhex(example["hex"]), TimerTime(example["at_ms"], example["by_event_time"])
    assert decode_timer(data) == time
    assert encode_timer(time) == data


@examples("lists")
def test_lists(example: dict[str, Any]) -> None:
    data, bounds = bytes.fromhex(example["hex"]), Bounds(example["first"], example["next"])
    assert (is_header(data), read_list_header(data)) == ("list", bounds)
    assert list_header(bounds) == data


def test_maps() -> None:
    assert bytes.fromhex(FORMAT["map"]) == MAP_HEADER
    assert is_header(MAP_HEADER) == "map"


@examples("entry_keys")
def test_keys_of_entries(example: dict[str, Any]) -> None:
    key, data = from_json(example["key"]), bytes.fromhex(example["hex"])
    assert repr(decode_entry_key(data)) == repr(key)
    assert encode_entry_key(key) == data


@examples("due")
def test_the_index_of_what_is_due(example: dict[str, Any]) -> None:
    record_key, value, data = (bytes.fromhex(example[name]) for name in ("record_key", "value", "hex"))
    assert index_key(record_key, value) == data
    assert parse_index_key(data).record_key == record_key


@examples("declared")
def test_declared_types(example: dict[str, Any]) -> None:
    data, schema = bytes.fromhex(example["hex"]), json.dumps(example["schema"])
    assert decode_plain(schema, data) == example["value"]
    codec = codec_for(example["schema"], name="example")
    assert codec.encode(example["value"]) == data
    assert codec.decode(data, lambda fingerprint: schema) == example["value"]
