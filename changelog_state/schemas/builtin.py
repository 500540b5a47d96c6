"""Variables of any value, or of a plain type: the built-in schema, which is fast, and a check of the type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from changelog_state.codec.avro import JSON_CODEC, decode_value, encode_value
from changelog_state.errors import ValueEncodingError
from changelog_state.schemas import tree
from changelog_state.schemas.declaration import builtin_form
from changelog_state.schemas.plain_writers import as_bool, as_bytes, as_float, as_int, as_str
from changelog_state.schemas.value_codec import Migrate, ValueCodec, WriterSchema

__all__ = ["PLAIN_TYPES", "AnyCodec", "PlainCodec"]


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    raise TypeError(f"{type(value).__qualname__} is not list")


def _as_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise TypeError(f"{type(value).__qualname__} is not dict")


PLAIN_TYPES: Final[dict[Any, Callable[[Any], Any]]] = {
    bool: as_bool,
    int: as_int,
    float: as_float,
    str: as_str,
    bytes: as_bytes,
    list: _as_list,
    dict: _as_dict,
}


class AnyCodec(ValueCodec):
    """Any value of the built-in schema."""

    fingerprint = None
    schema_json = None
    declaration: str | None = None

    def __init__(self, name: str, migrate: Migrate | None = None) -> None:
        super().__init__(name, JSON_CODEC.header, migrate)

    @property
    def node(self) -> tree.Node:
        return tree.ANYTHING

    def encode(self, value: Any) -> bytes:
        return encode_value(value)

    def _decode_own(self, data: bytes) -> Any:
        return decode_value(data)

    def __reduce__(self) -> tuple[Any, ...]:
        return AnyCodec, (self.name, self.migrate)


class PlainCodec(AnyCodec):
    """Values of one of ``PLAIN_TYPES``."""

    def __init__(self, cls: type, name: str, migrate: Migrate | None = None) -> None:
        super().__init__(name, migrate)
        self.cls = cls
        self.declaration = builtin_form(cls.__name__)
        self._take = PLAIN_TYPES[cls]

    def encode(self, value: Any) -> bytes:
        if type(value) is self.cls:
            return encode_value(value)
        try:
            taken = self._take(value)
        except (TypeError, OverflowError) as error:
            raise self.refused(self._misfit(value)) from error
        return encode_value(taken)

    def decode(self, data: bytes, writer_schema: WriterSchema) -> Any:
        if data.startswith(self.header):
            value = decode_value(data)
            return value if type(value) is self.cls else self._other(value)
        return super().decode(data, writer_schema)

    def _other(self, value: Any) -> Any:
        """A value of the built-in schema that is not of this type: written before it was declared, or as another."""
        if self.migrate is not None:
            return self._migrated(value)
        try:
            return self._take(value)
        except (TypeError, OverflowError):
            raise self._stored(value) from None

    def _accept(self, value: Any) -> Any:
        try:
            return self._take(value)
        except (TypeError, OverflowError):
            raise self._stored(value) from None

    def is_current(self, data: bytes) -> bool:
        return super().is_current(data) and type(decode_value(data)) is self.cls

    def _stored(self, value: Any) -> ValueEncodingError:
        return ValueEncodingError(
            f"variable {self.name} has a stored value that does not fit: {self._misfit(value)}; declare it as it "
            "was, or say migrate=func(old) -> new"
        )

    def _misfit(self, value: Any) -> str:
        text = repr(value)
        shown = text if len(text) <= 80 else text[:80] + "…"
        return f"it is {shown} of type {type(value).__qualname__}, but {self.cls.__name__} is declared"

    def __reduce__(self) -> tuple[Any, ...]:
        return PlainCodec, (self.cls, self.name, self.migrate)
