"""Values as Avro single objects: C3 01, the schema's CRC-64-AVRO fingerprint in 8 bytes, the body."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any, Final

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form
from fastavro.validation import validate

from changelog_state.codec.json_reader import read_body, unreadable
from changelog_state.codec.json_schema import JSON_SCHEMA
from changelog_state.codec.json_writer import unsupported, write_body
from changelog_state.errors import ConfigurationError, ValueEncodingError

__all__ = [
    "JSON_CODEC",
    "JSON_SCHEMA",
    "SingleObjectCodec",
    "decode_value",
    "encode_value",
    "fingerprint_of",
]

_MAGIC: Final = b"\xc3\x01"
_HEADER_SIZE: Final = 10


class SingleObjectCodec:
    """Encodes values of one declared schema, with fastavro."""

    def __init__(self, schema: dict[str, Any]) -> None:
        try:
            self.schema_json: str = json.dumps(schema, separators=(",", ":"))
            self._parsed = fastavro.parse_schema(schema)
            canonical = to_parsing_canonical_form(schema)
        except Exception as error:
            raise ConfigurationError(f"an Avro schema is not valid: {error!r}; correct {schema!r}") from error
        self.fingerprint = bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
        self.header = _MAGIC + self.fingerprint

    def encode(self, value: Any) -> bytes:
        out = BytesIO(self.header)
        out.seek(_HEADER_SIZE)
        try:
            # Unchecked, fastavro writes 1.5 as the int 1 and leaves out a field that the schema lacks.
            validate(value, self._parsed)
            fastavro.schemaless_writer(out, self._parsed, value, strict_allow_default=True)
        except Exception as error:
            raise ValueEncodingError(
                f"a value does not fit its Avro schema: {error}; correct the value, or declare another schema"
            ) from error
        return out.getvalue()

    def decode(self, data: bytes) -> Any:
        if data[:_HEADER_SIZE] != self.header:
            raise _wrong_header(data, self.header)
        body = BytesIO(data)
        body.seek(_HEADER_SIZE)
        try:
            value = fastavro.schemaless_reader(body, self._parsed, None)
        except Exception as error:
            raise unreadable(data, repr(error)) from error
        if body.tell() != len(data):
            raise unreadable(data, f"it ends at byte {body.tell()} of {len(data)}")
        return value

    def __reduce__(self) -> tuple[Any, ...] | str:
        return type(self), (json.loads(self.schema_json),)


class _JsonCodec(SingleObjectCodec):
    """The built-in schema. One for all: use ``JSON_CODEC``."""

    def __init__(self) -> None:
        super().__init__(JSON_SCHEMA)

    def encode(self, value: Any) -> bytes:
        return encode_value(value)

    def decode(self, data: bytes) -> Any:
        return decode_value(data)

    def __reduce__(self) -> str:
        return "JSON_CODEC"


JSON_CODEC: Final = _JsonCodec()
_JSON_HEADER: Final = JSON_CODEC.header
# Whole values that are common enough to be looked up. Only these types: 1 == 1.0 == True.
_SMALL_INTS: Final = {number: _JSON_HEADER + write_body(number) for number in range(-256, 4096)}
_DECODED: Final[dict[bytes, Any]] = {data: number for number, data in _SMALL_INTS.items()} | {
    _JSON_HEADER + write_body(constant): constant for constant in (None, False, True)
}


def encode_value(value: Any) -> bytes:
    """Any value of None, bool, int, float, str, bytes, list and dict, under the built-in schema."""
    if type(value) is int and value in _SMALL_INTS:
        return _SMALL_INTS[value]
    try:
        return _JSON_HEADER + write_body(value)
    except Exception as error:
        raise unsupported(value) from error


def decode_value(data: bytes) -> Any:
    """What ``encode_value`` has written; any other bytes are an error."""
    if data in _DECODED:
        return _DECODED[data]
    if not data.startswith(_JSON_HEADER):
        raise _wrong_header(data, _JSON_HEADER)
    return read_body(data, _HEADER_SIZE)


def fingerprint_of(data: bytes) -> bytes:
    """The fingerprint of the schema with which a value was written."""
    if data[:2] != _MAGIC or len(data) < _HEADER_SIZE:
        raise unreadable(data, "it is not an Avro single object, which begins with c301 and a fingerprint")
    return data[2:_HEADER_SIZE]


def _wrong_header(data: bytes, expected: bytes) -> ValueEncodingError:
    found = fingerprint_of(data)
    return ValueEncodingError(
        f"a value was written with schema {found.hex()}, but is read with {expected[2:].hex()};"
        f" use the schema that the changelog keeps under s{found.hex()}"
    )
