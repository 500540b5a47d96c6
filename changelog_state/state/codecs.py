"""How the values of one variable become bytes, and what is needed to read those of earlier times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from changelog_state.codec.avro import decode_value, encode_value

__all__ = ["ANY", "SchemaOf", "ValueCodec"]

SchemaOf = Callable[[bytes], str]
"""A schema's JSON, by its fingerprint, as the changelog has it."""


class ValueCodec(Protocol):
    @property
    def fingerprint(self) -> bytes | None:
        """None: the built-in schema, which every changelog has."""

    @property
    def schema_json(self) -> str | None: ...

    def encode(self, value: Any) -> bytes: ...

    def decode(self, data: bytes, schema_of: SchemaOf) -> Any: ...


class _Any:
    fingerprint = None
    schema_json = None

    def encode(self, value: Any) -> bytes:
        return encode_value(value)

    def decode(self, data: bytes, schema_of: SchemaOf) -> Any:
        return decode_value(data)

    def __reduce__(self) -> str:
        return "ANY"


ANY: Final[ValueCodec] = _Any()
"""Whatever the built-in schema can hold."""
