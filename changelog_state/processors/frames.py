"""A task's Arrow batches as pandas frames by key, without converting each key's rows by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from changelog_state.processors.initial import has_initial, is_input, only_initial, only_input
from changelog_state.processors.spark_frames import SparkFrames
from changelog_state.task.grouping import runs, with_last

__all__ = ["Group", "grouped_frames"]

MOST_ROWS = 10_000
"""That are in one frame."""


@dataclass
class Group:
    """All rows of a key. There is more than one frame only if the rows are many."""

    key: Any
    """As it is encoded: a value, or a tuple of several columns' values."""
    given_key: tuple[Any, ...] = ()
    """As Spark gives it to a processor: what pandas has in the key columns."""
    frames: list[pd.DataFrame] = field(default_factory=list)
    initial: list[pd.DataFrame] = field(default_factory=list)


def grouped_frames(
    batches: Iterator[pa.RecordBatch], key_columns: Sequence[str], frames: SparkFrames
) -> Iterator[list[Group]]:
    """Per Arrow batch, the keys that are complete by now.

    The last key of a batch may go on in the next one, so it is held back unless this is the last batch.
    """
    held: Group | None = None
    for batch, is_last in with_last(batch for batch in batches if batch.num_rows):
        groups = list(_groups(batch, key_columns, frames))
        if held is not None:
            if groups[0].key == held.key:
                groups[0].frames = _joined(held.frames, groups[0].frames)
                groups[0].initial = _joined(held.initial, groups[0].initial)
            else:
                groups.insert(0, held)
        held = None if is_last else groups.pop()
        if groups:
            yield groups


def _groups(batch: pa.RecordBatch, key_columns: Sequence[str], frames: SparkFrames) -> Iterator[Group]:
    starts, keys = runs(batch, tuple(key_columns))
    bounds = [*starts, batch.num_rows]
    given = [frames.column(batch.column(name), name).to_numpy() for name in key_columns]
    with_initial = has_initial(batch)
    rows = _WholeBatch(only_input(batch) if with_initial else batch, frames)
    initial = _WholeBatch(only_initial(batch), frames) if with_initial else None
    # How many of the batch's rows before each one are rows, and not initial state.
    before = np.concatenate([[0], np.cumsum(is_input(batch))]) if with_initial else range(batch.num_rows + 1)
    for key, start, end in zip(keys, bounds, bounds[1:], strict=False):
        group = Group(key, tuple([values[start] for values in given]))
        group.frames = rows.between(int(before[start]), int(before[end]))
        if initial is not None:
            group.initial = initial.between(start - int(before[start]), end - int(before[end]))
        yield group


def _joined(first: list[pd.DataFrame], second: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """What Spark would give as one frame is not in two because of where a batch ends."""
    if not first or not second or len(first[-1]) + len(second[0]) > MOST_ROWS:
        return first + second
    return [*first[:-1], pd.concat([first[-1], second[0]], ignore_index=True), *second[1:]]


class _WholeBatch:
    """Converted at once, and cut. Only columns whose type depends on nulls have to be looked at key by key."""

    def __init__(self, batch: pa.RecordBatch, frames: SparkFrames) -> None:
        series = [frames.column(column, name) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
        self._frame = pd.concat(series, axis=1) if series else pd.DataFrame()
        self._varying = [
            _Varying(number, column, frames)
            for number, column in enumerate(batch.columns)
            if column.null_count and _varies(column.type)
        ]

    def between(self, start: int, end: int) -> list[pd.DataFrame]:
        if start == end:
            return []
        found = self._frame.iloc[start:end]
        # No other key sees these rows, so a processor may do with them what it likes.
        found._is_copy = None  # type: ignore[attr-defined]
        found.index = _numbered(end - start)
        for column in self._varying:
            if column.is_complete(start, end):
                found.isetitem(column.number, column.complete[start:end])
        return [found]


class _Varying:
    """Whole numbers and booleans: with a null among them pandas has another type for all."""

    def __init__(self, number: int, column: pa.Array, frames: SparkFrames) -> None:
        self.number = number
        filler = False if pa.types.is_boolean(column.type) else 0
        self.complete = frames.column(column.fill_null(filler), "").to_numpy()
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        self._nulls_before: list[int] = [0, *np.cumsum(nulls).tolist()]

    def is_complete(self, start: int, end: int) -> bool:
        return self._nulls_before[start] == self._nulls_before[end]


def _varies(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow_type) or pa.types.is_boolean(arrow_type))


@lru_cache(maxsize=1024)
def _numbered(rows: int) -> pd.RangeIndex:
    return pd.RangeIndex(rows)
