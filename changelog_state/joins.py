"""What a join of two inputs is asked to be, checked, and made into a program and the schema of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from pyspark.sql.types import StructField, StructType

from changelog_state.durations import Duration, duration_us
from changelog_state.errors import ConfigurationError
from changelog_state.settings import check_choice
from changelog_state.task.stored_rows import StoredRows
from changelog_state.task.stream_join import Side, StreamJoin

__all__ = ["How", "Within", "join_of"]

How: TypeAlias = Literal["inner", "left", "right", "outer"]
Within: TypeAlias = Duration | tuple[Duration, Duration]


def join_of(
    schema: StructType,
    inputs: tuple[str, str],
    columns: Sequence[Sequence[str]],
    *,
    key_columns: tuple[str, ...],
    tag: str,
    event_time: str,
    within: Within,
    how: How,
) -> tuple[StreamJoin, StructType]:
    """``columns``: those that each input has."""
    check_choice("how", how, ("inner", "left", "right", "outer"))
    before_us, after_us = _bounds_us(within)
    taken = [*key_columns, *inputs]
    if len(set(taken)) < len(taken):
        raise ConfigurationError(
            f"the columns of the result would be {taken}; give key columns and both inputs names of their own"
        )
    kept = [StructType([schema[name] for name in its if name not in key_columns]) for its in columns]
    left = Side(inputs[0], StoredRows(kept[0]), before_us, after_us, how in ("left", "outer"))
    right = Side(inputs[1], StoredRows(kept[1]), after_us, before_us, how in ("right", "outer"))
    output = StructType(
        [
            *(StructField(name, schema[name].dataType) for name in key_columns),
            *(StructField(name, its) for name, its in zip(inputs, kept, strict=True)),
        ]
    )
    return StreamJoin(key_columns, tag, event_time, left, right), output


def _bounds_us(within: Within) -> tuple[int, int]:
    """How much earlier, and how much later, the right row may be than the left one."""
    if not isinstance(within, tuple):
        both = duration_us(within, "within")
        return both, both
    if len(within) != 2:
        raise ConfigurationError(
            f"within is {within!r}; give one length of time, or how much earlier and how much later the right row "
            "may be: ('10 minutes', '1 hour')"
        )
    return duration_us(within[0], "within"), duration_us(within[1], "within")
