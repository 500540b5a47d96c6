"""The codec of a declared variable: values of its type as Avro single objects, and those of any generation back."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from changelog_state.codec.avro import JSON_CODEC, SingleObjectCodec, fingerprint_of
from changelog_state.codec.json_reader import unreadable
from changelog_state.errors import FunctionError, ValueEncodingError
from changelog_state.schemas import tree
from changelog_state.schemas.record_code import Read
from changelog_state.schemas.resolution import MisfitError, Resolution

__all__ = ["HEADER_SIZE", "Migrate", "ValueCodec", "WriterSchema", "too_long"]

HEADER_SIZE: Final = 10
Migrate = Callable[[Any], Any]
WriterSchema = Callable[[bytes], str]
"""From a fingerprint to the JSON text of the schema that has it."""


class ValueCodec(ABC):
    """``fingerprint`` and ``schema_json`` are None for types that use the built-in schema."""

    fingerprint: bytes | None
    schema_json: str | None
    declaration: str | None
    """What is recorded of a generation: as much of the schema as reading its values takes."""

    def __init__(self, name: str, header: bytes, migrate: Migrate | None) -> None:
        self.name = name
        self.migrate = migrate
        self.header = header
        self._old: dict[bytes, tuple[Read, tree.Node]] = {}

    @property
    @abstractmethod
    def node(self) -> tree.Node:
        """What values of other schemas are resolved to."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """The whole single object."""

    @abstractmethod
    def _decode_own(self, data: bytes) -> Any: ...

    def _accept(self, value: Any) -> Any:
        """A value that was resolved, if it is one of this type."""
        return value

    def is_current(self, data: bytes) -> bool:
        """Whether a value was written with the declared schema, so that it needs no migration."""
        return data.startswith(self.header)

    def decode(self, data: bytes, writer_schema: WriterSchema) -> Any:
        if data.startswith(self.header):
            return self._decode_own(data)
        fingerprint = fingerprint_of(data)
        if fingerprint not in self._old:
            self._old[fingerprint] = self._old_reader(fingerprint, writer_schema)
        read, written = self._old[fingerprint]
        try:
            value, end = read(data, HEADER_SIZE)
        except Exception as error:
            raise self.unread(data, error, written) from error
        if end != len(data):
            raise too_long(data, end)
        return self._accept(value) if self.migrate is None else self._migrated(value)

    def _old_reader(self, fingerprint: bytes, writer_schema: WriterSchema) -> tuple[Read, tree.Node]:
        if fingerprint == JSON_CODEC.fingerprint:
            written: tree.Node = tree.ANYTHING
        else:
            schema = json.loads(writer_schema(fingerprint))
            found = SingleObjectCodec(schema).fingerprint
            if found != fingerprint:
                raise ValueEncodingError(
                    f"variable {self.name} was written with schema {fingerprint.hex()}, but the one kept under it "
                    f"has {found.hex()}: {schema!r}; keep each schema under its own fingerprint"
                )
            written = tree.parse(schema)
        resolution = Resolution(self.name)
        read = resolution.reader(written, written if self.migrate else self.node)
        if resolution.problems:
            raise ValueEncodingError(
                f"variable {self.name} has a value that its declaration cannot read: {resolution.problems[0]}; "
                "declare it as before, or say migrate=func(old) -> new"
            )
        return read, written

    def unread(self, data: bytes, error: Exception, written: tree.Node) -> ValueEncodingError:
        """Whether the bytes are damaged, or what they say is not taken by the declared type."""
        if not isinstance(error, MisfitError):
            try:
                Resolution().reader(written, written)(data, HEADER_SIZE)
            except Exception:
                return unreadable(data, str(error) if isinstance(error, ValueError) else "it is cut short")
        return ValueEncodingError(
            f"variable {self.name} has a stored value that does not fit its declaration: {error}; declare it as it "
            "was, or say migrate=func(old) -> new"
        )

    def _migrated(self, old: Any) -> Any:
        assert self.migrate is not None
        try:
            new = self.migrate(old)
        except Exception as error:
            raise FunctionError(
                f"migrate of variable {self.name} has raised {error!r} for {old!r}; it must take the values of every "
                "earlier schema"
            ) from error
        # Through bytes, so that it is now what it will be when it is read again.
        return self._decode_own(self.encode(new))

    def refused(self, text: str) -> ValueEncodingError:
        return ValueEncodingError(
            f"variable {self.name} does not take this value: {text}; correct the value, or declare another type"
        )


def too_long(data: bytes, end: int) -> ValueEncodingError:
    return unreadable(data, f"it ends at byte {end} of {len(data)}")
