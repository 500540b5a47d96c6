"""Output rows as records for their topic: a key, a value and headers each, whole Arrow batches at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.codec.headers import pack_headers
from changelog_state.codec.json_columns import json_objects, json_texts
from changelog_state.errors import OutputSchemaError
from changelog_state.task.output_avro import avro_rows
from changelog_state.task.spec import OutputTopic

__all__ = ["OutputRecords", "record_name"]

_RECORDS = 5_000
_BYTES = 8 * 1024 * 1024


class OutputRecords:
    def __init__(self, topic: OutputTopic, schema: pa.Schema) -> None:
        """``schema``: of the user's rows."""
        self.topic = topic
        self._schema = schema
        self._avro = avro_rows(schema, record_name(topic.name)) if topic.format == "avro" else None

    def of(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
        """Keys, values and packed headers (null: none), in the order of the rows, in chunks of bounded size."""
        columns = [rows.column(number) for number in range(len(self._schema))]
        keys, headers = self._keys(columns, rows.num_rows), self._headers(columns, rows.num_rows)
        values = self._values(columns, rows.num_rows)
        sizes = sum(pc.fill_null(pc.binary_length(each), 0).to_numpy() for each in (keys, values, headers))
        self._check_sizes(sizes, keys)
        for start, end in _chunks(sizes):
            yield keys[start:end], values[start:end], headers[start:end]

    def _keys(self, columns: list[pa.Array], rows: int) -> pa.Array:
        """One string or binary column as it is; anything else as JSON, several columns as an object."""
        topic = self.topic
        if not topic.key:  # only with format="columns"
            if topic.needs_key and rows:
                self._refuse_without_key("the rows have no column 'key'")
            return pa.nulls(rows, pa.binary())
        named = [columns[self._schema.names.index(name)] for name in topic.key]
        for name, column in zip(topic.key, named, strict=True):
            if column.null_count and (topic.format != "columns" or topic.needs_key):
                self._refuse_without_key(f"column {name!r} is null in {column.null_count} of {rows} rows")
        if len(named) > 1:
            return json_objects(list(topic.key), named, rows).cast(pa.binary())
        return _bytes(named[0]) if _is_text(named[0].type) else json_texts(named[0]).cast(pa.binary())

    def _refuse_without_key(self, reason: str) -> NoReturn:
        raise OutputSchemaError(
            f"an output row has no key for topic {self.topic.name}: {reason}; fill it in, or give other columns with "
            "KafkaOutput(key=)"
        )

    def _values(self, columns: list[pa.Array], rows: int) -> pa.Array:
        if self.topic.format == "columns":
            return _bytes(columns[self._schema.names.index("value")])
        if self._avro is not None:
            return self._avro.encode(columns)
        return json_objects(self._schema.names, columns, rows).cast(pa.binary())

    def _headers(self, columns: list[pa.Array], rows: int) -> pa.Array:
        number = self._schema.get_field_index("headers") if self.topic.format == "columns" else -1
        if number < 0 or columns[number].null_count == rows:
            return pa.nulls(rows, pa.binary())
        packed = []
        for headers in columns[number].to_pylist():
            pairs = [tuple((header or {}).values()) for header in headers or ()]
            if any(not pair or pair[0] is None for pair in pairs):
                raise OutputSchemaError(
                    f"an output row for topic {self.topic.name} has a header without a name: {headers}; name it"
                )
            packed.append(pack_headers(pairs) if pairs else None)
        return pa.array(packed, pa.binary())

    def _check_sizes(self, sizes: np.ndarray, keys: pa.Array) -> None:
        largest = self.topic.largest_record_bytes
        if len(sizes) and sizes.max() > largest:
            number = int(sizes.argmax())
            raise OutputSchemaError(
                f"an output row takes {sizes[number]} bytes, topic {self.topic.name} takes records up to {largest}: "
                f"the one with key {keys[number].as_py()!r}; put less into it, or raise the topic's max.message.bytes"
            )


def record_name(topic: str) -> str:
    """The name of the Avro record: the topic's, as far as Avro allows."""
    name = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in topic)
    return f"_{name}" if name[0].isdigit() else name


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _bytes(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _chunks(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        end = int(np.searchsorted(ends, before + _BYTES, side="right"))
        end = max(start + 1, min(end, start + _RECORDS))
        yield start, end
        start = end
