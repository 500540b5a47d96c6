"""Records of a store or changelog, decoded for people and programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from changelog_state.changelog.record import Claim, Marker
from changelog_state.codec.avro import decode_value
from changelog_state.codec.expiring import EXPIRING_CODEC
from changelog_state.codec.keys import KeyCodec, split_record_key
from changelog_state.codec.kinds import CLAIM, DATA, MARKER, SCHEMA, TIMER
from changelog_state.errors import InvalidInputError

__all__ = ["LOGGED_KINDS", "Entry", "decode_entry", "decode_record", "kind_name"]

LOGGED_KINDS = {CLAIM: "claim", DATA: "data", MARKER: "marker", SCHEMA: "schema", TIMER: "timer"}
"""The kinds that a changelog has, in the order of their keys."""


@dataclass(frozen=True)
class Entry:
    """One value of one key."""

    key: Any
    name: str
    value: Any
    expires_ms: int | None


def kind_name(record_key: bytes) -> str:
    return LOGGED_KINDS.get(record_key[:1], "unknown")


def decode_entry(codec: KeyCodec, record_key: bytes, data: bytes) -> Entry:
    """A record of kind ``d``. Expired values are shown too: they are there until they are deleted."""
    _, key, name = split_record_key(codec, record_key)
    if data.startswith(EXPIRING_CODEC.header):
        expiring = EXPIRING_CODEC.decode(data)
        return Entry(key, name, decode_value(expiring["value"]), expiring["expires_ms"])
    return Entry(key, name, decode_value(data), None)


def decode_record(codec: KeyCodec | None, record_key: bytes, data: bytes | None) -> dict[str, Any]:
    """Any record, as far as it can be read: key, name and value, or the bytes in hex."""
    kind = record_key[:1]
    try:
        if kind == DATA and codec is not None:
            if data is None:
                _, key, name = split_record_key(codec, record_key)
                return {"key": key, "name": name, "value": None}
            return asdict(decode_entry(codec, record_key, data))
        return {"key": _rest_of(record_key), "name": None, "value": None if data is None else _value(kind, data)}
    except (InvalidInputError, ValueError):
        return {"key": record_key.hex(), "name": None, "value": None if data is None else data.hex()}


def _value(kind: bytes, data: bytes) -> Any:
    if kind == MARKER:
        return vars(Marker.decode(data))
    if kind == CLAIM:
        return vars(Claim.decode(data))
    if kind == SCHEMA:
        return json.loads(data)
    return data.hex()


def _rest_of(record_key: bytes) -> str | None:
    return record_key[1:].hex() or None
