"""How one column of a key becomes bytes that sort like its values.

A part raises ``ValueError`` with a fact and a remedy; ``KeyCodec`` adds which column it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

import numpy as np

__all__ = ["PARTS", "KeyPart"]

_BYTES: Final = (bytes, bytearray, memoryview)
_BOOL: Final = (bool, np.bool_)
_INT: Final = (int, np.integer)
_NOT_INT: Final = (bool, np.timedelta64)  # NOTE: to isinstance, these are integers.

_BOOLEANS: Final = {False: b"\x00", True: b"\x01"}
_SIGN: Final = 1 << 63
_UINT64: Final = Struct(">Q").pack
_TYPED_INTEGER: Final = Struct(">cQ").pack


class KeyPart:
    """One column type. ``type_byte`` is left out by a key that is one string or one binary column."""

    type_byte: bytes
    python_name: str

    def encode(self, value: Any) -> bytes:
        """The bytes of a value, after checking its type and range."""
        raise NotImplementedError

    def encode_column(self, type_byte: bytes, column: Sequence[Any]) -> list[bytes]:
        """Many values, each after ``type_byte``; Arrow has checked types and ranges, but not for nulls."""
        raise NotImplementedError

    def decode(self, data: bytes, offset: int) -> tuple[Any, int]:
        """The value at ``offset`` and the offset behind it."""
        raise NotImplementedError

    def _mismatch(self, value: object) -> ValueError:
        if value is None:
            return ValueError("is null; filter such rows out, or replace the null with coalesce()")
        return ValueError(f"is {value!r}, a Python {type(value).__name__}; pass a {self.python_name}")


class StringPart(KeyPart):
    type_byte = b"\x03"
    python_name = "str"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise self._mismatch(value)
        try:
            return _escape(value.encode()) + b"\0"
        except UnicodeEncodeError as error:
            raise ValueError(f"is {value!r}, not valid Unicode; remove its lone surrogates") from error

    def encode_column(self, type_byte: bytes, column: Sequence[str]) -> list[bytes]:
        # One look at all strings together costs a tenth of looking at each.
        joined = "\0".join(column)
        if "\1" in joined or joined.count("\0") >= len(column):
            return [type_byte + _escape(text.encode()) + b"\0" for text in column]
        first = type_byte.decode()
        return [f"{first}{text}\0".encode() for text in column]

    def decode(self, data: bytes, offset: int) -> tuple[str, int]:
        plain, end = _decode_escaped(data, offset)
        return plain.decode(), end


class BinaryPart(KeyPart):
    type_byte = b"\x02"
    python_name = "bytes"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, _BYTES):
            raise self._mismatch(value)
        return _escape(bytes(value)) + b"\0"

    def encode_column(self, type_byte: bytes, column: Sequence[bytes]) -> list[bytes]:
        joined = b"\0".join(column)
        if 1 in joined or joined.count(b"\0") >= len(column):
            return [type_byte + _escape(data) + b"\0" for data in column]
        return [type_byte + data + b"\0" for data in column]

    def decode(self, data: bytes, offset: int) -> tuple[bytes, int]:
        return _decode_escaped(data, offset)


class BooleanPart(KeyPart):
    type_byte = b"\x04"
    python_name = "bool"

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, _BOOL):
            raise self._mismatch(value)
        return _BOOLEANS[bool(value)]

    def encode_column(self, type_byte: bytes, column: Sequence[bool]) -> list[bytes]:
        encoded = {flag: type_byte + byte for flag, byte in _BOOLEANS.items()}
        return [encoded[flag] for flag in column]

    def decode(self, data: bytes, offset: int) -> tuple[bool, int]:
        return (False, True)[data[offset]], offset + 1


class IntegerPart(KeyPart):
    """All widths are stored alike, so that a column can be widened without rewriting its keys."""

    type_byte = b"\x05"
    python_name = "int"

    def __init__(self, bits: int) -> None:
        self.limit = 1 << (bits - 1)

    def encode(self, value: Any) -> bytes:
        if type(value) is not int and (not isinstance(value, _INT) or isinstance(value, _NOT_INT)):
            raise self._mismatch(value)
        number = int(value)
        if not -self.limit <= number < self.limit:
            raise ValueError(
                f"is {number}, outside {-self.limit} … {self.limit - 1}; use a wider type for the column"
            )
        return _UINT64(number + _SIGN)

    def encode_column(self, type_byte: bytes, column: Sequence[int]) -> list[bytes]:
        return [_TYPED_INTEGER(type_byte, number + _SIGN) for number in column]

    def decode(self, data: bytes, offset: int) -> tuple[int, int]:
        end = offset + 8
        if end > len(data):
            raise ValueError("an integer is cut short")
        return int.from_bytes(data[offset:end], "big") - _SIGN, end


PARTS: Final[dict[str, KeyPart]] = {
    "string": StringPart(),
    "binary": BinaryPart(),
    "boolean": BooleanPart(),
    "byte": IntegerPart(8),
    "short": IntegerPart(16),
    "int": IntegerPart(32),
    "long": IntegerPart(64),
}


def _escape(data: bytes) -> bytes:
    if 0 in data or 1 in data:  # much faster than to look for b"\0"
        return data.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1")
    return data


def _decode_escaped(data: bytes, offset: int) -> tuple[bytes, int]:
    end = data.find(b"\0", offset)
    if end < 0:
        raise ValueError("the terminator 00 is missing")
    escaped = data[offset:end]
    if 1 not in escaped:
        return escaped, end + 1
    plain = escaped.replace(b"\1\1", b"\0").replace(b"\1\2", b"\1")
    if _escape(plain) != escaped:
        raise ValueError("01 is followed by neither 01 nor 02")
    return plain, end + 1
