"""Sorted Arrow batches to groups: every key once, with all of its rows, whatever the batches' borders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Group", "grouped", "row_maker", "runs", "with_last"]

Row = dict[str, Any]
Group = tuple[Any, list[Row]]


def grouped(
    batches: Iterator[pa.RecordBatch], key_columns: tuple[str, ...]
) -> Iterator[tuple[list[Any], list[list[Row]]]]:
    """Per Arrow batch, the keys that are complete by now and their rows.

    The last key of a batch may go on in the next one, so it is held back unless this is the last batch.
    """
    make_rows: Callable[[pa.RecordBatch], list[Row]] | None = None
    held_key: Any = None
    held_rows: list[Row] = []
    for batch, is_last in with_last(batch for batch in batches if batch.num_rows):
        make_rows = make_rows or row_maker(batch.schema.names)
        rows = make_rows(batch)
        starts, keys = runs(batch, key_columns)
        groups = [rows[start:end] for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)]
        if held_rows:
            if keys[0] == held_key:
                held_rows.extend(groups[0])
                groups[0] = held_rows
            else:
                keys.insert(0, held_key)
                groups.insert(0, held_rows)
        if not is_last:
            held_key, held_rows = keys.pop(), groups.pop()
        if keys:
            yield keys, groups


def with_last(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Each batch, and whether it is the last one: small inputs are then one request to the owner, not two."""
    previous: pa.RecordBatch | None = None
    for batch in batches:
        if previous is not None:
            yield previous, False
        previous = batch
    if previous is not None:
        yield previous, True


def row_maker(names: list[str]) -> Callable[[pa.RecordBatch], list[Row]]:
    """A function that turns a batch into dicts. The dict display is generated: it is what makes this fast."""
    variables = [f"v{index}" for index in range(len(names))]
    display = ", ".join(f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True))
    unpack = ", ".join(variables)
    source = f"lambda columns: [{{{display}}} for ({unpack},) in zip(*columns)]"
    build: Callable[[list[list[Any]]], list[Row]] = eval(source)
    return lambda batch: build([column.to_pylist() for column in batch.columns])


def runs(batch: pa.RecordBatch, key_columns: tuple[str, ...]) -> tuple[list[int], list[Any]]:
    """Where each run of equal keys starts, and the key of each run."""
    columns = [batch.column(name) for name in key_columns]
    changes = None
    for column in columns:
        differs = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
        changes = differs if changes is None else pc.or_(changes, differs)
    starts = [0, *(index + 1 for index in pc.indices_nonzero(changes).to_pylist())]
    positions = pa.array(starts)
    picked = [column.take(positions).to_pylist() for column in columns]
    return starts, picked[0] if len(picked) == 1 else list(zip(*picked, strict=True))
