"""Output rows as Avro: the schema is made from Arrow's as Spark makes it from its own, so every field may be null."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from changelog_state.aggregation.avro import types as avro
from changelog_state.aggregation.avro.cursor import Cursor
from changelog_state.aggregation.avro.record_codec import RecordCodec
from changelog_state.errors import ConfigurationError

__all__ = ["avro_rows"]

_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[pa.DataType, avro.AvroType] = {
    pa.bool_(): avro.BOOLEAN,
    pa.int8(): avro.INT,
    pa.int16(): avro.INT,
    pa.int32(): avro.INT,
    pa.int64(): avro.LONG,
    pa.float32(): avro.FLOAT,
    pa.float64(): avro.DOUBLE,
    pa.string(): avro.STRING,
    pa.binary(): avro.BYTES,
    pa.date32(): avro.DATE,
    pa.null(): avro.STRING,
}


def avro_rows(schema: pa.Schema, name: str) -> RecordCodec:
    """For rows of this schema, with a record of this name. Records and decimals in it are named by where they are."""
    return RecordCodec(_record(schema, name))


def _record(fields: pa.Schema | pa.StructType, path: str) -> avro.Record:
    wrong = [field.name for field in fields if not _LEGAL_NAME.fullmatch(field.name)]
    if wrong:
        raise ConfigurationError(
            f"columns {wrong} cannot be fields of an Avro record; name them with letters, digits and '_'"
        )
    # With a default, whoever knows of a new column can read rows from before it.
    return avro.Record(
        path, tuple(avro.Field(f.name, _nullable(f.type, f"{path}.{f.name}"), (("default", None),)) for f in fields)
    )


def _nullable(kind: pa.DataType, path: str) -> avro.AvroType:
    return avro.Nullable(_type(kind, path))


def _type(kind: pa.DataType, path: str) -> avro.AvroType:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind):
        return avro.LOCAL_TIMESTAMP if kind.tz is None else avro.TIMESTAMP
    if pa.types.is_decimal128(kind):
        return avro.Decimal(path, kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return avro.Array(_nullable(kind.value_type, path))
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return _Map(_nullable(kind.item_type, path))
    if pa.types.is_struct(kind):
        return _record(kind, path)
    raise ConfigurationError(
        f"column {path.partition('.')[2]!r} is of type {kind}, which Avro does not have; convert it, e.g. to a string"
    )


@dataclass(frozen=True)
class _Map(avro.AvroType):
    """The same bytes as an array of records with a string and a value."""

    values: avro.AvroType

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(pa.string(), self.values.arrow)

    def schema(self) -> Any:
        return {"type": "map", "values": self.values.schema()}

    @property
    def _entries(self) -> avro.Array:
        return avro.Array(avro.Record("entry", (avro.Field("key", avro.STRING), avro.Field("value", self.values))))

    def write(self, column: pa.Array) -> list[pa.Array]:
        column = column.take(pa.array(np.arange(len(column))))  # so that its entries are those of its rows alone
        entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        return self._entries.write(pa.ListArray.from_arrays(column.offsets, entries, mask=column.is_null()))

    def read(self, cursor: Cursor) -> pa.Array:
        found = self._entries.read(cursor)
        entries = found.values
        return pa.MapArray.from_arrays(found.offsets, entries.field("key"), entries.field("value"))
