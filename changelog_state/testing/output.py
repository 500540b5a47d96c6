"""What a function gives out, in a test: as it is, or as the schema makes it of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from changelog_state.task.output import OutputRows
from changelog_state.task.spec import LATE_COLUMN, TICKET_COLUMN

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["CheckedRows", "PlainRows"]


class PlainRows:
    """In place of a schema: the function's rows as they are."""

    def to_arrow(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        return [dict(row) for row in rows]


class CheckedRows:
    """Rows through the Arrow types that they have in a task, and back. There is no JVM to ask what a schema means."""

    def __init__(self, schema: str | StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        from changelog_state.processors.ddl import parse_schema

        fields = to_arrow_schema(parse_schema(schema) if isinstance(schema, str) else schema)
        self._names = fields.names
        self._output = OutputRows(fields.append(pa.field(TICKET_COLUMN, pa.binary())))

    def to_arrow(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        late = [isinstance(row, Mapping) and LATE_COLUMN in row for row in rows]
        checked = self._output.to_arrow([row for row, is_late in zip(rows, late, strict=True) if not is_late])
        found = iter(checked.select(self._names).to_pylist(maps_as_pydicts="strict"))
        return [dict(row) if is_late else next(found) for row, is_late in zip(rows, late, strict=True)]
