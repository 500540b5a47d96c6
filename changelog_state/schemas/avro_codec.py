"""The codec of a variable with an Avro schema: the user's own, or one made of what was declared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from changelog_state.codec.avro import SingleObjectCodec
from changelog_state.schemas import tree
from changelog_state.schemas.bindings import Binding
from changelog_state.schemas.declaration import written_form
from changelog_state.schemas.explain import explain
from changelog_state.schemas.record_code import Read
from changelog_state.schemas.resolution import Resolution
from changelog_state.schemas.value_codec import HEADER_SIZE, Migrate, ValueCodec, WriterSchema, too_long
from changelog_state.schemas.writing import Writers

__all__ = ["AvroCodec"]

Bindings = tuple[tuple[str, Binding], ...]


class AvroCodec(ValueCodec):
    def __init__(
        self, schema: Any, bindings: Mapping[str, Binding], name: str, migrate: Migrate | None = None
    ) -> None:
        single_object = SingleObjectCodec(schema)
        self._load(single_object.schema_json, tuple(bindings.items()), name, migrate)

    def _load(self, schema_json: str, bindings: Bindings, name: str, migrate: Migrate | None) -> None:
        made = _made(schema_json, bindings)
        super().__init__(name, made.header, migrate)
        self.fingerprint = made.fingerprint
        self.schema_json = schema_json
        self.declaration = made.declaration
        self._bindings = bindings
        self._made = made
        self._write = made.write
        self._own_reader = made.read

    @property
    def node(self) -> tree.Node:
        return self._made.node

    def encode(self, value: Any) -> bytes:
        try:
            return self.header + self._write(value)
        except Exception as error:
            raise self.refused(explain(self._made.writers, self.node, value, self.name)) from error

    def decode(self, data: bytes, writer_schema: WriterSchema) -> Any:
        return self._decode_own(data) if data.startswith(self.header) else super().decode(data, writer_schema)

    def _decode_own(self, data: bytes) -> Any:
        try:
            value, end = self._own_reader(data, HEADER_SIZE)
        except Exception as error:
            raise self.unread(data, error, tree.parse(json.loads(self._made.declaration))) from error
        if end != len(data):
            raise too_long(data, end)
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return _loaded, (self.schema_json, self._bindings, self.name, self.migrate)


def _loaded(schema_json: str, bindings: Bindings, name: str, migrate: Migrate | None) -> AvroCodec:
    codec = AvroCodec.__new__(AvroCodec)
    codec._load(schema_json, bindings, name, migrate)
    return codec


@dataclass(frozen=True)
class _Made:
    header: bytes
    fingerprint: bytes
    declaration: str
    node: tree.Node
    writers: Writers
    write: Callable[[Any], bytes]
    read: Read


# Remembered, because Spark's Python workers live on: every task of every batch brings the same declarations.
@lru_cache(maxsize=256)
def _made(schema_json: str, bindings: Bindings) -> _Made:
    schema = json.loads(schema_json)
    single_object = SingleObjectCodec(schema)
    node, writers = tree.parse(schema, dict(bindings)), Writers()
    return _Made(
        single_object.header,
        single_object.fingerprint,
        written_form(schema),
        node,
        writers,
        writers(node),
        Resolution().reader(node, node),
    )
