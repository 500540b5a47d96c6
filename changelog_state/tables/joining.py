"""A left join of a DataFrame with a global table: one look-up per Arrow batch, in the tasks that have the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from changelog_state.errors import InvalidKeyError, OutputSchemaError
from changelog_state.tables.access import TableAccess, by_nearness
from changelog_state.tables.context import TaskTables
from changelog_state.task.output import OutputRows
from changelog_state.task.schema import user_schema
from changelog_state.task.worker_tuning import tune_worker

__all__ = ["join_batches", "joined"]


@dataclass(frozen=True)
class JoinSpec:
    tables: TaskTables
    """With one table, the one that is joined."""
    on: tuple[int, ...]
    """Which columns are the key."""
    fields: pa.Schema
    """Of what is added."""
    names: tuple[str, ...]
    """Of the result's columns."""


def joined(df: DataFrame, tables: TaskTables, on: str | Sequence[str], schema: str | StructType) -> DataFrame:
    key_columns = [on] if isinstance(on, str) else list(on)
    columns = df.columns
    unknown = [name for name in key_columns if name not in columns]
    if unknown or not key_columns:
        raise InvalidKeyError(f"join columns {unknown or key_columns} are not in the DataFrame, which has {columns}")
    added = user_schema(schema)
    taken = [name for name in added.fieldNames() if name in columns]
    if taken:
        raise OutputSchemaError(f"the DataFrame has columns {taken} already; rename them, or those of schema=")
    fields = [*df.schema.fields, *(StructField(field.name, field.dataType, True) for field in added.fields)]
    names = [field.name for field in fields]
    # Spark cannot hand over names with dots, so on the way columns have numbers.
    numbered = StructType(
        [StructField(str(number), field.dataType, field.nullable) for number, field in enumerate(fields)]
    )
    spec = JoinSpec(
        tables, tuple(columns.index(name) for name in key_columns), to_arrow_schema(added), tuple(numbered.names)
    )
    frame = df.toDF(*numbered.names[: len(columns)])
    return frame.mapInArrow(lambda batches: join_batches(spec, batches), numbered).toDF(*names)


def join_batches(spec: JoinSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task. Each batch with the new columns; where there is no key, or nothing under it, they are null."""
    tune_worker()
    [(settings, request)] = spec.tables.tables
    access = TableAccess(settings, request, lambda: by_nearness(spec.tables.agents), keep=True)
    output = OutputRows(spec.fields.append(pa.field("", pa.binary())))
    try:
        for batch in batches:
            if batch.num_rows:
                keys = _keys(batch, spec.on)
                found = access.get_many({key for key in keys if key is not None}, None)
                rows = [_row(found.get(key), spec.fields.names) for key in keys]
                added = output.to_arrow(rows).columns[:-1]
                yield pa.record_batch([*batch.columns, *added], names=list(spec.names))
    finally:
        access.close()


def _keys(batch: pa.RecordBatch, on: tuple[int, ...]) -> list[Any]:
    columns = [batch.column(number).to_pylist() for number in on]
    if len(columns) == 1:
        return columns[0]  # type: ignore[no-any-return]
    return [None if None in key else key for key in zip(*columns, strict=True)]


def _row(value: Any, names: list[str]) -> dict[str, Any]:
    if value is None:
        return dict.fromkeys(names)
    if isinstance(value, Mapping):
        return {name: value.get(name) for name in names}
    if len(names) == 1:
        return {names[0]: value}
    raise OutputSchemaError(
        f"a value to be joined is a {type(value).__name__}, which cannot fill the columns {names}: {value!r}; give "
        "one column in schema=, or write objects to the topic"
    )
