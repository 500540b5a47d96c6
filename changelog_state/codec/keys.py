"""Keys as bytes that sort like the keys themselves.

A text or binary part is escaped (0x00 → 01 01, 0x01 → 01 02) and ends with 0x00, which then occurs nowhere
else in it. So no encoded key is the beginning of another one, and bytes compare as the keys do.

    one string or binary column    escaped bytes, 00
    anything else, per column      type byte, then
        binary 02, string 03         escaped bytes, 00
        boolean 04                   00 or 01
        integer 05 (any width)       8 bytes, big-endian, sign bit flipped

A record key is ``kind + encoded key + state name``; all names of one key begin with ``kind + encoded key``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from changelog_state.codec.key_parts import PARTS, KeyPart
from changelog_state.errors import InvalidKeyError

__all__ = ["KeyCodec", "record_key", "split_record_key"]

_SPARK_NAMES: Final = {"tinyint": "byte", "smallint": "short", "integer": "int", "bigint": "long"}


@dataclass(frozen=True)
class KeyCodec:
    """Encodes the keys of one store. A key of one column is a scalar, of several columns a tuple."""

    types: tuple[str, ...]
    _parts: tuple[KeyPart, ...] = field(init=False, repr=False, compare=False)
    # Empty for a lone string or binary.
    _type_bytes: tuple[bytes, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.types:
            raise InvalidKeyError("a key has no columns; name at least one")
        for name in self.types:
            if name not in PARTS:
                raise InvalidKeyError(
                    f"a key column cannot be of type {name!r}, only {', '.join(PARTS)};"
                    " cast the column to string or long"
                )
        parts = tuple(PARTS[name] for name in self.types)
        plain = self.types in (("string",), ("binary",))
        object.__setattr__(self, "_parts", parts)
        object.__setattr__(self, "_type_bytes", tuple(b"" if plain else part.type_byte for part in parts))

    @classmethod
    def from_spark(cls, names: Iterable[str]) -> KeyCodec:
        """The codec for columns of these Spark types, given by ``simpleString`` name ("bigint")."""
        return cls(tuple(_SPARK_NAMES.get(name, name) for name in names))

    def describe(self) -> list[str]:
        """The types as JSON can hold them; ``KeyCodec(tuple(described))`` is this codec again."""
        return list(self.types)

    def encode(self, key: Any) -> bytes:
        """The bytes of one key, after checking types and ranges."""
        if len(self.types) == 1:
            return self._encode_part(0, key)
        return self._encode_tuple(key, at_least=len(self.types))

    def bound(self, key: Any) -> bytes:
        """Where a range scan starts (inclusive) or ends (exclusive)."""
        return self.encode(key)

    def prefix(self, partial: Any) -> bytes:
        """What the wanted keys begin with.

        One string or binary column: the beginning of the text. Several columns: a tuple of the leading ones.
        """
        if len(self.types) > 1:
            return self._encode_tuple(partial, at_least=0)
        if self._type_bytes == (b"",):
            return self._encode_part(0, partial)[:-1]
        raise InvalidKeyError(f"a key of type {self.types[0]} has no prefix; scan from start to end instead")

    def encode_columns(self, columns: Sequence[Sequence[Any]]) -> list[bytes]:
        """The keys of many rows, from columns that Arrow has typed already; only nulls are looked for."""
        if len(columns) != len(self.types):
            raise InvalidKeyError(f"{len(columns)} key columns were given; pass {len(self.types)}")
        parts = []
        for index, column in enumerate(columns):
            try:
                parts.append(self._parts[index].encode_column(self._type_bytes[index], column))
            except Exception as error:
                for value in column:
                    self._encode_part(index, value)  # raises for the first bad one, and says why
                raise InvalidKeyError(f"key column {index} cannot be encoded: {error}") from error
        return parts[0] if len(parts) == 1 else list(map(b"".join, zip(*parts, strict=True)))

    def decode(self, data: bytes, offset: int = 0) -> tuple[Any, int]:
        """The key that begins at ``offset``, and the offset behind it."""
        try:
            if len(self.types) == 1:
                return self._decode_part(0, data, offset)
            parts, end = [], offset
            for index in range(len(self.types)):
                part, end = self._decode_part(index, data, end)
                parts.append(part)
            return tuple(parts), end
        except (ValueError, IndexError) as error:
            raise InvalidKeyError(
                f"bytes are not a key of ({', '.join(self.types)}): {data[offset:].hex()} ({error});"
                " open the store with the key columns it was made with"
            ) from error

    def _encode_part(self, index: int, value: Any) -> bytes:
        try:
            return self._type_bytes[index] + self._parts[index].encode(value)
        except ValueError as error:
            raise InvalidKeyError(f"key column {index} ({self.types[index]}) {error}") from error

    def _decode_part(self, index: int, data: bytes, offset: int) -> tuple[Any, int]:
        type_byte = self._type_bytes[index]
        if type_byte:
            if data[offset] != type_byte[0]:
                raise ValueError(f"{self.types[index]} must begin with {type_byte.hex()}")
            offset += 1
        return self._parts[index].decode(data, offset)

    def _encode_tuple(self, key: Any, at_least: int) -> bytes:
        if not isinstance(key, tuple) or not at_least <= len(key) <= len(self.types):
            leading = "" if at_least else " or its leading parts"
            raise InvalidKeyError(
                f"a key of {len(self.types)} columns is given as {key!r};"
                f" pass the tuple ({', '.join(self.types)}){leading}"
            )
        return b"".join([self._encode_part(index, value) for index, value in enumerate(key)])


def record_key(kind: bytes, encoded_key: bytes, name: str) -> bytes:
    """The key of a record: its kind, the encoded key, the state name."""
    try:
        return kind + encoded_key + name.encode()
    except UnicodeEncodeError as error:
        raise InvalidKeyError(f"state name {name!r} is not valid Unicode; remove its lone surrogates") from error


def split_record_key(codec: KeyCodec, record_key: bytes) -> tuple[bytes, Any, bytes]:
    """Kind, key, and what follows it: a state name, and for an entry of a list or map its own key."""
    key, end = codec.decode(record_key, 1)
    return record_key[:1], key, record_key[end:]
