"""A task's part: what Spark has aggregated for the keys of an Arrow batch, merged with what is stored for them.

Whole columns all the way. No Spark session and no connection are needed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
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

__all__ = ["Merged", "States", "TaskAggregation"]

_HEADER_BYTES = 10


class Merged(NamedTuple):
    values: pa.Array
    """What is to be stored for each key."""
    output: list[pa.Array]
    """One column per aggregate, in Spark's types."""


class States(NamedTuple):
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
        columns = self.merged(self.decoded(stored), partials, key_of)
        return Merged(self.encoded(columns), self.results(columns))

    def merged(self, before: States, partials: Sequence[pa.Array], key_of: Callable[[int], Any]) -> list[pa.Array]:
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
        return columns

    def merged_at(
        self,
        before: States,
        where: npt.NDArray[np.int64],
        partials: Sequence[pa.Array],
        has: Sequence[Mask] | None,
        key_of: Callable[[int], Any],
    ) -> States:
        """The states, some of which these partials are merged into. ``has``: per aggregate, who has partials."""
        some = States(
            [column.take(pa.array(where)) for column in before.columns], [mask[where] for mask in before.known]
        )
        merged = self.merged(some, partials, lambda row: key_of(int(where[row])))
        count = len(before.columns[0])
        columns, known = [], []
        for number, (old, new, mask) in enumerate(zip(before.columns, merged, before.known, strict=True)):
            rows = np.arange(len(where)) if has is None else np.flatnonzero(has[number])
            places = np.arange(count)
            places[where[rows]] = count + rows
            columns.append(pa.concat_arrays([old, new.cast(old.type)]).take(pa.array(places)))
            known.append((places >= count) | mask)
        return States(columns, known)

    def encoded(self, columns: list[pa.Array]) -> pa.Array:
        return self._codec.encode(columns)

    def results(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """One column per aggregate, in Spark's types."""
        found = []
        for name, function, column, kind in zip(
            self._names, self._functions, columns, self._output_types, strict=True
        ):
            try:
                found.append(function.finish(column).cast(kind))
            except pa.ArrowInvalid as error:  # integers of all widths are kept alike
                raise ConfigurationError(
                    f"{function.kind} {name!r} is now of type {function.output.simpleString()}, which cannot hold "
                    f"what is kept: {error}; nothing of this batch was committed. Cast the column to long"
                ) from error
        return found

    def partials_before(self, number: int) -> int:
        """How many partials there are before those of this aggregate."""
        return sum(len(function.partial_types) for function in self._functions[:number])

    def partials_of(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """What these states are to others that they are merged into."""
        both = zip(self._functions, columns, strict=True)
        return [partial for function, column in both for partial in function.partials_of(column)]

    def decoded(self, stored: pa.Array) -> States:
        values = stored.drop_null() if stored.null_count else stored
        present: Mask = stored.is_valid().to_numpy(zero_copy_only=False)
        if pc.all(self._codec.wrote(values), min_count=0).as_py():
            columns = self._codec.decode(values)
            if len(values) < len(stored):
                columns = [spread(column, present) for column in columns]
            return States(columns, [present] * len(columns))
        return self._decoded_earlier(values, np.flatnonzero(present), len(stored))

    def _decoded_earlier(self, values: pa.Array, rows: Any, count: int) -> States:
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
        return States(columns, known)

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
