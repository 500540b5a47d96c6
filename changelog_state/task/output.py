"""The function's dicts to Arrow, with an error that names the row and the field when one does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from changelog_state.errors import OutputSchemaError
from changelog_state.task.output_values import Check, check_of
from changelog_state.task.spec import LATE_COLUMN

__all__ = ["OutputRows"]


class OutputRows:
    def __init__(self, schema: pa.Schema) -> None:
        """``schema`` ends with the ticket column."""
        self._schema = schema
        self._fields = list(schema)[:-1]
        self._names = [field.name for field in self._fields]
        # Late rows are the user's own, as they came.
        self._checks = [None if field.name == LATE_COLUMN else check_of(field.type) for field in self._fields]
        if not self._names:
            self._pick: Any = lambda row: ()
        elif len(self._names) == 1:
            only = self._names[0]
            self._pick = lambda row: (row[only],)
        else:
            self._pick = itemgetter(*self._names)

    def to_arrow(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        width = len(self._names)
        try:
            picked = [self._pick(row) for row in rows]
            if any(len(row) != width for row in rows):
                raise KeyError
        except (KeyError, TypeError):
            picked = [self._pick_carefully(row) for row in rows]
        columns = list(zip(*picked, strict=True)) if width else []
        arrays = [
            self._column(field, check, values, rows)
            for field, check, values in zip(self._fields, self._checks, columns, strict=True)
        ]
        return pa.record_batch([*arrays, pa.nulls(len(rows), pa.binary())], schema=self._schema)

    def ticket(self, ticket: bytes) -> pa.RecordBatch:
        nulls = [pa.nulls(1, field.type) for field in self._fields]
        return pa.record_batch([*nulls, pa.array([ticket], pa.binary())], schema=self._schema)

    def _pick_carefully(self, row: Any) -> tuple[Any, ...]:
        """A field that is left out is null; one that the schema does not know is a mistake."""
        if not isinstance(row, Mapping):
            raise OutputSchemaError(
                f"output row is a {type(row).__name__}: {_short(row)}; yield dicts with the fields {self._names}"
            )
        unknown = [name for name in row if name not in self._names]
        if unknown:
            raise OutputSchemaError(
                f"output row has fields {unknown} that are not in schema= {self._names}: {_short(row)}; "
                "add them to the schema, or leave them out of the row"
            )
        return tuple(row.get(name) for name in self._names)

    def _column(self, field: pa.Field, check: Check | None, values: Sequence[Any], rows: Sequence[Any]) -> pa.Array:
        try:
            return _array(values, field.type, check)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            for value, row in zip(values, rows, strict=True):
                try:
                    _array([value], field.type, check)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    raise OutputSchemaError(
                        f"output field {field.name!r} is {_short(value)} ({type(value).__name__}), but the schema "
                        f"says {field.type}: {_short(row)} ({error}); convert the value, or change schema="
                    ) from error
            raise


def _array(values: Sequence[Any], kind: pa.DataType, check: Check | None) -> pa.Array:
    array = pa.array(values, kind)
    if check is not None:
        check(values)
    return array


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
