"""A global table's keys to bytes, and bytes to values: of a plain topic as declared, of a store as it was made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from changelog_state.changelog.record import StoreIdentity
from changelog_state.codec.avro import SingleObjectCodec, fingerprint_of
from changelog_state.codec.entries import name_suffix
from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.partitioner import is_certain, kafka_key_bytes, kafka_partition, partition_of
from changelog_state.errors import ConfigurationError, InvalidInputError, ValueEncodingError
from changelog_state.state.context import StateContext
from changelog_state.state.outside import values_of
from changelog_state.state.ttl import ABSENT
from changelog_state.tables.settings import TableSettings

__all__ = ["StoreCodec", "TableCodec", "TopicCodec"]

_KEY_TYPES = {"string": ("string",), "bytes": ("binary",), "long": ("long",)}
SchemaOf = Callable[[str, bytes], str | None]
Stored = Mapping[str, bytes]
"""What an agent has under a key, by name; in a plain topic there is one, without a name."""


class TableCodec(Protocol):
    anywhere: bool
    """Whether a key may be in another partition than the one where it is looked for first."""

    def encode(self, key: Any) -> bytes: ...

    def place(self, key: Any, encoded: bytes) -> int:
        """The partition in which it should be."""

    def decode(self, stored: Stored, name: str | None, now_ms: int) -> Any:
        """What was asked for; ABSENT if it is not there (any more)."""


class TopicCodec:
    """Keys as Java's serializers write them, placed as Java's producer does; values as declared."""

    anywhere = True

    def __init__(self, settings: TableSettings, partitions: int) -> None:
        self._table = settings.name
        self._key_codec = KeyCodec(_KEY_TYPES[settings.key])
        self._kind = settings.value
        self._partitions = partitions
        self._decode = _VALUES[settings.value] if settings.value != "avro" else _AvroValues(settings.schemas).decode

    def encode(self, key: Any) -> bytes:
        return kafka_key_bytes(key, self._key_codec)

    def place(self, key: Any, encoded: bytes) -> int:
        return kafka_partition(encoded, self._partitions)

    def decode(self, stored: Stored, name: str | None, now_ms: int) -> Any:
        if name is not None:
            raise InvalidInputError(
                f"global table {self._table} follows a plain topic, whose values have no names, but {name!r} was "
                "asked for; leave it out (for what to return if there is nothing, say default=)"
            )
        data = stored.get("")
        if data is None:
            return ABSENT
        try:
            return self._decode(data)
        except ValueError as error:
            raise ValueEncodingError(
                f"a value of global table {self._table} is not {self._kind}: {data[:50]!r} ({error}); say what its "
                "topic holds with value="
            ) from error


class StoreCodec:
    """As the store was made: its claims tell. Values that have expired are not there."""

    def __init__(self, settings: TableSettings, identity: StoreIdentity, schema_of: SchemaOf) -> None:
        """``schema_of``: with which a value was written, by its name and fingerprint."""
        application = settings.application or identity.application
        if (identity.application, identity.store) != (application, settings.store):
            raise ConfigurationError(
                f"global table {settings.name} asks for store {application}/{settings.store}, but its changelog is "
                f"that of {identity.application}/{identity.store}; correct application= and store="
            )
        self._table = settings.name
        self._identity = identity
        self._schema_of = schema_of
        self._schemas: dict[tuple[str, bytes], str] = {}
        self._key_codec = KeyCodec(tuple(identity.key_types))
        self.anywhere = not is_certain(identity.partitioner)

    def encode(self, key: Any) -> bytes:
        return self._key_codec.encode(key)

    def place(self, key: Any, encoded: bytes) -> int:
        return partition_of(self._identity.partitioner, key, self._key_codec, self._identity.partitions)

    def decode(self, stored: Stored, name: str | None, now_ms: int) -> Any:
        """Lists and maps are no part of a table: it has what stands in one record."""
        context = _Context(now_ms, self._schema)
        entries = stored.items() if name is None else [(name, stored[name])] if name in stored else []
        found = values_of(context, sorted((name_suffix(each), data) for each, data in entries))
        if name is not None:
            return found.get(name, ABSENT)
        return found or ABSENT

    def _schema(self, name: str, fingerprint: bytes) -> str:
        known = self._schemas.get((name, fingerprint))
        if known is None:
            known = self._schema_of(name, fingerprint)
            if known is None:
                raise ValueEncodingError(
                    f"{name!r} in global table {self._table} was written with schema {fingerprint.hex()}, which its "
                    "store does not have; verify the store, and rebuild it if it is damaged"
                )
            self._schemas[name, fingerprint] = known
        return known


class _Context(StateContext):
    """Nothing is declared, and nothing can be read beyond: who has the table knows the schemas."""

    def __init__(self, now_ms: int, schema_of: Callable[[str, bytes], str]) -> None:
        super().__init__(now_ms)
        self._find = schema_of

    def _schema_of(self, name: str, fingerprint: bytes) -> str:
        return self._find(name, fingerprint)


class _AvroValues:
    """Single objects, each by the schema that its fingerprint names."""

    def __init__(self, schemas: Iterable[str]) -> None:
        codecs = [SingleObjectCodec(json.loads(schema)) for schema in schemas]
        self._codecs = {codec.fingerprint: codec for codec in codecs}

    def decode(self, data: bytes) -> Any:
        fingerprint = fingerprint_of(data)
        codec = self._codecs.get(fingerprint)
        if codec is None:
            known = ", ".join(each.hex() for each in self._codecs)
            raise ValueEncodingError(
                f"a value was written with schema {fingerprint.hex()}, but only {known} was given; add the schema "
                "that its producer uses to schema= (a list, if there are several)"
            )
        return codec.decode(data)


_VALUES: dict[str, Callable[[bytes], Any]] = {"json": json.loads, "string": bytes.decode, "bytes": bytes}
