"""Records of a store or changelog, decoded for people and programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from changelog_state.changelog.record import Claim, Marker
from changelog_state.codec.avro import JSON_CODEC, decode_value, fingerprint_of
from changelog_state.codec.entries import decode_entry_key, is_header, split_suffix
from changelog_state.codec.expiring import read_expiring
from changelog_state.codec.keys import KeyCodec, split_record_key
from changelog_state.codec.kinds import CLAIM, DATA, MARKER, SCHEMA, TIMER
from changelog_state.codec.timers import decode_timer
from changelog_state.errors import InvalidInputError
from changelog_state.schemas.plain_values import decode_plain
from changelog_state.store.base import Store

__all__ = ["LOGGED_KINDS", "Entry", "decode_entry", "decode_record", "kind_name", "schemas_in"]

LOGGED_KINDS = {CLAIM: "claim", DATA: "data", MARKER: "marker", SCHEMA: "schema", TIMER: "timer"}
"""The kinds that a changelog has, in the order of their keys."""


@dataclass(frozen=True)
class Entry:
    """One value of one key."""

    key: Any
    name: str
    value: Any
    expires_ms: int | None
    entry: Any = None
    """Which one of a list (its number) or map (its key)."""


def kind_name(record_key: bytes) -> str:
    return LOGGED_KINDS.get(record_key[:1], "unknown")


SchemaOf = Callable[[bytes], str | None]
"""A schema's JSON, by its fingerprint."""


def schemas_in(store: Store) -> SchemaOf:
    """Those that a store has with its values."""

    def schema_of(fingerprint: bytes) -> str | None:
        found = store.get(SCHEMA + fingerprint)
        return None if found is None else found.decode()

    return schema_of


def decode_entry(codec: KeyCodec, record_key: bytes, data: bytes, schema_of: SchemaOf) -> Entry:
    """A record of kind ``d``. Expired values are shown too: they are there until they are deleted."""
    key, name, entry = _split(codec, record_key)
    expiring = read_expiring(data)
    value = data if expiring is None else expiring.value
    kind = is_header(value)
    decoded = _decoded(value, schema_of) if kind is None else f"<{kind}>"
    return Entry(key, name, decoded, None if expiring is None else expiring.expires_ms, entry)


def _split(codec: KeyCodec, record_key: bytes) -> tuple[Any, str, Any]:
    _, key, suffix = split_record_key(codec, record_key)
    name, entry = split_suffix(suffix)
    return key, name, None if entry is None else decode_entry_key(entry)


def _decoded(value: bytes, schema_of: SchemaOf) -> Any:
    fingerprint = fingerprint_of(value)
    schema = None if fingerprint == JSON_CODEC.fingerprint else schema_of(fingerprint)
    return decode_value(value) if schema is None else decode_plain(schema, value)


def decode_record(
    codec: KeyCodec | None, record_key: bytes, data: bytes | None, schema_of: SchemaOf = lambda fingerprint: None
) -> dict[str, Any]:
    """Any record, as far as it can be read: key, name and value, or the bytes in hex."""
    kind = record_key[:1]
    try:
        if kind == DATA and codec is not None:
            if data is None:
                key, name, entry = _split(codec, record_key)
                return {"key": key, "name": name, "value": None, "entry": entry}
            return asdict(decode_entry(codec, record_key, data, schema_of))
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
    if kind == TIMER:
        return decode_timer(data)._asdict()
    return data.hex()


def _rest_of(record_key: bytes) -> str | None:
    return record_key[1:].hex() or None
