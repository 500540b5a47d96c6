"""A task's part: what Spark has aggregated for the keys of an Arrow batch, merged with what is stored for them.

Whole columns all the way. No Spark session and no connection are needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from changelog_state.aggregation.avro.pieces import Mask
from changelog_state.aggregation.avro.record_codec import RecordCodec
from changelog_state.aggregation.avro.types import spread
from changelog_state.aggregation.evolution import earlier_codec, refuse_changed
from changelog_state.aggregation.functions.base import BadRowError
from changelog_state.aggregation.plan import Plan
from changelog_state.codec.avro import fingerprint_of
from changelog_state.errors import ConfigurationError, ValueEncodingError

__all__ = ["Merged", "TaskAggregation"]

_HEADER_BYTES = 10


class Merged(NamedTuple):
    values: pa.Array
    """What is to be stored for each key."""
    output: list[pa.Array]
    """One column per aggregate, in Spark's types."""


class _Stored(NamedTuple):
    columns: list[pa.Array]
    """One per aggregate; null where nothing is stored."""
    known: list[Mask]


class TaskAggregation:
    def __init__(self, plan: Plan, find_schema: Callable[[bytes], str | None]) -> None:
        """``find_schema``: the text of an earlier schema, by its fingerprint."""
        self._plan = plan
        self._codec = plan.codec
        self._functions = list(plan.functions.values())
        self._names = list(plan.functions)
        self._output_types = [to_arrow_type(function.output) for function in self._functions]
        self.partial_count = sum(len(function.partial_types) for function in self._functions)
        self._find_schema = find_schema
        self._earlier: dict[bytes, RecordCodec] = {}

    def merge(self, stored: pa.Array, partials: Sequence[pa.Array], key_of: Callable[[int], Any]) -> Merged:
        """
        1. Decode what is stored: one binary value per key, null if there is none.
        2. Merge each aggregate's column with its partials.
        3. Encode; finish the results.

        ``key_of``: the key in a row, for errors.
        """
        before = self._decoded(stored)
        columns, rest = [], list(partials)
        for name, function, old, known in zip(self._names, self._functions, *before, strict=True):
            kinds = function.partial_types
            mine = [column.cast(kind) for column, kind in zip(rest, kinds, strict=False)]
            rest = rest[len(kinds) :]
            try:
                columns.append(function.merge(old, known, mine))
            except BadRowError as error:
                raise ValueEncodingError(
                    f"{function.kind} {name!r} of key {key_of(error.row)!r} {error}; nothing of this batch was "
                    "committed. Sum a wider type, as in cs.sum(F.col(...).cast('double')), under another name"
                ) from error
        values = self._codec.encode(columns)
        finished = [
            function.finish(column).cast(kind)
            for function, column, kind in zip(self._functions, columns, self._output_types, strict=True)
        ]
        return Merged(values, finished)

    def finished(self, stored: pa.Array) -> list[pa.Array]:
        """The results of what is stored, as it is: one column per aggregate, in Spark's types."""
        before = self._decoded(stored)
        return [
            function.finish(column).cast(kind)
            for function, column, kind in zip(self._functions, before.columns, self._output_types, strict=True)
        ]

    def _decoded(self, stored: pa.Array) -> _Stored:
        values = stored.drop_null() if stored.null_count else stored
        present: Mask = stored.is_valid().to_numpy(zero_copy_only=False)
        if pc.all(self._codec.wrote(values), min_count=0).as_py():
            columns = self._codec.decode(values)
            if len(values) < len(stored):
                columns = [spread(column, present) for column in columns]
            return _Stored(columns, [present] * len(columns))
        return self._decoded_earlier(values, np.flatnonzero(present), len(stored))

    def _decoded_earlier(self, values: pa.Array, rows: Any, count: int) -> _Stored:
        """The same if other schemas are among them: schema by schema, then together in the order of the rows."""
        known = [np.zeros(count, dtype=np.bool_) for _ in self._names]
        parts: list[list[pa.Array]] = [[] for _ in self._names]
        part_rows: list[list[Any]] = [[] for _ in self._names]
        headers = pc.binary_slice(values, 0, _HEADER_BYTES)
        for header in pc.unique(headers).to_pylist():
            mine = pc.equal(headers, header)
            codec = self._codec_of(header)
            decoded = dict(
                zip((field.name for field in codec.record.fields), codec.decode(values.filter(mine)), strict=True)
            )
            places = rows[mine.to_numpy(zero_copy_only=False)]
            for number, name in enumerate(self._names):
                if name in decoded:
                    parts[number].append(decoded[name])
                    part_rows[number].append(places)
                    known[number][places] = True
        columns = []
        for function, found, found_rows, mask in zip(self._functions, parts, part_rows, known, strict=True):
            if found:
                order = pa.array(np.argsort(np.concatenate(found_rows), kind="stable"))
                columns.append(spread(pa.concat_arrays(found).take(order), mask))
            else:
                columns.append(pa.nulls(count, function.state.arrow))
        return _Stored(columns, known)

    def _codec_of(self, header: bytes) -> RecordCodec:
        if header == self._codec.single.header:
            return self._codec
        codec = self._earlier.get(header)
        if codec is None:
            fingerprint = fingerprint_of(header)
            schema = self._find_schema(fingerprint)
            if schema is None:
                raise ConfigurationError(
                    f"state was written with schema {fingerprint.hex()}, which is none of aggregate(); "
                    "keep the aggregates under another name"
                )
            codec = self._earlier[header] = earlier_codec(schema)
            refuse_changed(codec.record, self._plan)
        return codec
