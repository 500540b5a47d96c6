"""Frames that a processor gives out, as Arrow: many small ones are converted together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from changelog_state.errors import OutputSchemaError
from changelog_state.processors.spark_frames import SparkFrames

__all__ = ["OutputFrames"]

_ROWS_AT_ONCE = 10_000

Signature: TypeAlias = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Labels and types of a frame's columns. Frames that have the same can be put together without changing a value."""


class OutputFrames:
    """``schema``: of the rows."""

    def __init__(self, schema: pa.StructType, frames: SparkFrames) -> None:
        self._schema = schema
        self._frames = frames
        self._waiting: list[tuple[Any, list[np.ndarray[Any, Any]]]] = []
        self._signature: Signature | None = None
        self._rows = 0

    def add(self, key: Any, frame: Any) -> Iterator[list[pa.Array]]:
        """Gives what is ready."""
        if not isinstance(frame, pd.DataFrame):
            raise OutputSchemaError(
                f"a processor gave out a {type(frame).__name__}: {str(frame)[:200]}; yield pandas DataFrames"
            )
        if not len(frame):
            return
        columns = _plain_columns(frame)
        if columns is None:
            yield from self.rest()
            yield self._converted(key, frame)
            return
        signature = tuple(frame.columns), tuple([column.dtype for column in columns])
        if signature != self._signature or self._rows >= _ROWS_AT_ONCE:
            yield from self.rest()
            self._signature = signature
        # A copy: the processor may go on with its frame.
        self._waiting.append((key, [column.copy() for column in columns]))
        self._rows += len(frame)

    def rest(self) -> Iterator[list[pa.Array]]:
        if not self._waiting:
            return
        assert self._signature is not None
        waiting, labels = self._waiting, self._signature[0]
        self._waiting, self._signature, self._rows = [], None, 0
        together = [np.concatenate(parts) for parts in zip(*(columns for _, columns in waiting), strict=True)]
        try:
            found = self._frames.arrow(_frame(labels, together), self._schema)
        except Exception:
            for key, columns in waiting:  # which one is it?
                self._converted(key, _frame(labels, columns))
            raise
        yield found

    def _converted(self, key: Any, frame: pd.DataFrame) -> list[pa.Array]:
        try:
            return self._frames.arrow(frame, self._schema)
        except Exception as error:
            raise OutputSchemaError(
                f"a frame that the processor gave out for key {key!r} does not fit output_schema {self._schema}: "
                f"{type(error).__name__}: {error}; its columns are {dict(frame.dtypes)}"
            ) from error


def _plain_columns(frame: Any) -> list[np.ndarray[Any, Any]] | None:
    """Its columns as numpy has them; None: pandas has types of its own for some, or there is nothing to be had."""
    labels = frame.columns
    if not len(labels) or isinstance(labels, pd.MultiIndex) or not labels.is_unique:
        return None
    # Making a Series of each would take longer than everything else here.
    columns: list[Any] = list(frame._iter_column_arrays())
    return columns if all(type(column) is np.ndarray for column in columns) else None


def _frame(labels: tuple[Any, ...], columns: list[np.ndarray[Any, Any]]) -> pd.DataFrame:
    return pd.DataFrame(dict(zip(labels, columns, strict=True)), columns=list(labels))
