"""Rows and initial state in one DataFrame, so that both of a key meet in one task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from changelog_state.errors import InvalidKeyError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["has_initial", "input_column", "is_input", "only_initial", "only_input"]
__all__ += ["rows_with_initial_state", "with_initial_state"]

_INPUT: Final = "__changelog_state_input"
_INITIAL: Final = "__changelog_state_initial"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Long before all rows: initial state does not move the watermark."""


def with_initial_state(
    df: DataFrame, initial: DataFrame, key_columns: Sequence[str], event_column: str | None
) -> DataFrame:
    """The key columns, and the whole row as one of two structs; the other one is null."""
    from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

    _check_keys(df, initial, key_columns)

    def whole(frame: DataFrame) -> Column:
        return F.struct(*(_column(name).alias(name) for name in frame.columns))

    keys = [_column(name) for name in key_columns]
    times = [_column(event_column)] if event_column is not None and event_column not in key_columns else []
    rows = df.select(*keys, *times, whole(df).alias(_INPUT))
    epoch = [F.timestamp_micros(F.lit(0)).cast(df.schema[event_column].dataType).alias(event_column)] if times else []
    states = initial.select(*keys, *epoch, whole(initial).alias(_INITIAL))
    return rows.unionByName(states, allowMissingColumns=True)


def rows_with_initial_state(
    rows: Iterable[Mapping[str, Any]],
    initial: Iterable[Mapping[str, Any]],
    key_columns: Sequence[str],
    event_column: str | None,
) -> list[dict[str, Any]]:
    """The same for plain rows."""
    found: list[dict[str, Any]] = [{_INPUT: dict(row), _INITIAL: None} for row in rows]
    found += [{_INPUT: None, _INITIAL: dict(state)} for state in initial]
    for both in found:
        whole = both[_INPUT] or both[_INITIAL]
        both |= {name: whole[name] for name in key_columns}
        if event_column is not None:
            both[event_column] = whole[event_column] if both[_INITIAL] is None else _EPOCH
    return found


def _check_keys(df: DataFrame, initial: DataFrame, key_columns: Sequence[str]) -> None:
    rows, states = dict(df.dtypes), dict(initial.dtypes)
    wrong = [name for name in key_columns if states.get(name) != rows.get(name)]
    if wrong:
        found, wanted = ({name: types.get(name) for name in wrong} for types in (states, rows))
        raise InvalidKeyError(
            f"initial_state has the key columns {found}, but the rows have {wanted}; give them the same names and "
            "types"
        )


def input_column(name: str) -> Column:
    """A column of the rows, where initial state is beside them."""
    return _column(_INPUT).getField(name)


def _column(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("`" + name.replace("`", "``") + "`")


def has_initial(batch: pa.RecordBatch) -> bool:
    return _INITIAL in batch.schema.names


def is_input(batch: pa.RecordBatch) -> pa.Array:
    """Per row, whether it is one of the rows, not of initial state."""
    if has_initial(batch):
        return batch.column(_INPUT).is_valid()
    return pa.array([True] * batch.num_rows)


def only_input(batch: pa.RecordBatch) -> pa.RecordBatch:
    return _unpacked(batch, _INPUT)


def only_initial(batch: pa.RecordBatch) -> pa.RecordBatch:
    return _unpacked(batch, _INITIAL)


def _unpacked(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    column = batch.column(name)
    return pa.RecordBatch.from_struct_array(column.filter(column.is_valid()))
