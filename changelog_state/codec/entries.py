"""Lists and maps in state: one record per entry, in the order of the entries' keys, and a header per collection.

    d + encoded key + name                  the header: what kind of collection it is
    d + encoded key + name + 00 + entry     one entry

Names have no NUL, so both are told apart from plain values, and all of a collection is one range. An entry's key
names its own type, and sorts like the value:

    binary 02, string 03, boolean 04, integer 05    as parts of keys (see ``keys.py``)
    float 07                                        8 bytes, big-endian, ordered
    tuple 06                                        its parts, one behind the other
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final, NamedTuple

from changelog_state.codec.avro import SingleObjectCodec
from changelog_state.codec.key_parts import PARTS
from changelog_state.codec.longs import read_long, write_long
from changelog_state.errors import InvalidKeyError

__all__ = [
    "LIST_CODEC",
    "MAP_CODEC",
    "MAP_HEADER",
    "Bounds",
    "decode_entry_key",
    "encode_entry_key",
    "is_header",
    "list_header",
    "name_suffix",
    "read_list_header",
    "split_suffix",
]

_NUL: Final = b"\0"
_INT, _STR, _BYTES, _BOOL = PARTS["long"], PARTS["string"], PARTS["binary"], PARTS["boolean"]
_DECODERS: Final = {part.type_byte[0]: part for part in (_INT, _STR, _BYTES, _BOOL)}
_TUPLE: Final = b"\x06"
_FLOAT: Final = b"\x07"
_PACK_DOUBLE: Final = Struct(">d")
_PACK_UNSIGNED: Final = Struct(">Q")
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1

LIST_CODEC: Final = SingleObjectCodec(
    {
        "type": "record",
        "name": "changelog_state.List",
        "fields": [{"name": "first", "type": "long"}, {"name": "next", "type": "long"}],
    }
)
MAP_CODEC: Final = SingleObjectCodec({"type": "record", "name": "changelog_state.Map", "fields": []})
MAP_HEADER: Final = MAP_CODEC.header
_LIST_HEADER: Final = LIST_CODEC.header


class Bounds(NamedTuple):
    """A list's entries have the numbers [first, next)."""

    first: int
    next: int


def list_header(bounds: Bounds) -> bytes:
    return _LIST_HEADER + write_long(bounds.first) + write_long(bounds.next)


def read_list_header(data: bytes) -> Bounds:
    first, at = read_long(data, len(_LIST_HEADER))
    return Bounds(first, read_long(data, at)[0])


def is_header(data: bytes) -> str | None:
    """``"list"``, ``"map"``, or None: a plain value."""
    if data.startswith(_LIST_HEADER):
        return "list"
    return "map" if data.startswith(MAP_HEADER) else None


def name_suffix(name: str) -> bytes:
    """What a name adds to a record key."""
    if "\0" in name:
        raise InvalidKeyError(f"state name {name!r} has a NUL character; leave it out")
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise InvalidKeyError(f"state name {name!r} is not valid Unicode; remove its lone surrogates") from error


def split_suffix(suffix: bytes) -> tuple[str, bytes | None]:
    """The name, and the entry's key if it is one."""
    name, separator, entry = suffix.partition(_NUL)
    try:
        return name.decode(), entry if separator else None
    except UnicodeDecodeError as error:
        raise InvalidKeyError(
            f"state name {name.hex()} is not UTF-8; verify the store, rebuild it if it is damaged"
        ) from error


def encode_entry_key(key: Any) -> bytes:
    if isinstance(key, tuple):
        return _TUPLE + b"".join(map(_encode_part, key))
    return _encode_part(key)


def decode_entry_key(data: bytes) -> Any:
    try:
        if data[:1] != _TUPLE:
            value, end = _decode_part(data, 0)
            if end != len(data):
                raise ValueError(f"it ends at byte {end}")
            return value
        parts, at = [], 1
        while at < len(data):
            part, at = _decode_part(data, at)
            parts.append(part)
        return tuple(parts)
    except (ValueError, IndexError, KeyError) as error:
        raise InvalidKeyError(
            f"bytes are not the key of an entry: {data.hex()} ({error}); "
            "verify the store, rebuild it if it is damaged"
        ) from error


def _encode_part(value: Any) -> bytes:
    try:
        if isinstance(value, str):
            return _STR.type_byte + _STR.encode(value)
        if isinstance(value, bool):
            return _BOOL.type_byte + _BOOL.encode(value)
        if isinstance(value, int):
            return _INT.type_byte + _INT.encode(value)
        if isinstance(value, (bytes, bytearray)):
            return _BYTES.type_byte + _BYTES.encode(value)
        if isinstance(value, float):
            return _FLOAT + _encode_float(value)
    except ValueError as error:
        raise InvalidKeyError(f"key of an entry {error}") from error
    raise InvalidKeyError(
        f"key of an entry is {value!r}, a {type(value).__name__}; use str, bytes, int, bool, float, or a tuple of "
        "these"
    )


def _decode_part(data: bytes, at: int) -> tuple[Any, int]:
    if data[at : at + 1] == _FLOAT:
        return _decode_float(data[at + 1 : at + 9]), at + 9
    return _DECODERS[data[at]].decode(data, at + 1)


def _encode_float(value: float) -> bytes:
    if value != value:
        raise ValueError("is not a number (nan), which has no order; use another key")
    [bits] = _PACK_UNSIGNED.unpack(_PACK_DOUBLE.pack(value + 0.0))  # -0.0 and 0.0 are one key
    return _PACK_UNSIGNED.pack(bits ^ _ALL if bits & _SIGN else bits | _SIGN)


def _decode_float(data: bytes) -> float:
    if len(data) != 8:
        raise ValueError("a float is cut short")
    [bits] = _PACK_UNSIGNED.unpack(data)
    [value] = _PACK_DOUBLE.unpack(_PACK_UNSIGNED.pack(bits & ~_SIGN if bits & _SIGN else bits ^ _ALL))
    return float(value)
