"""Spark's order of values, on Arrow columns: null before all, NaN behind every number, structs by their fields.

A column becomes one or more *keys*, plain columns without nulls and NaN, that compare one by one as the values do.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.avro.pieces import Mask

__all__ = ["extreme", "order_keys"]


def order_keys(column: pa.Array) -> list[pa.Array]:
    """In the order in which they decide."""
    keys = [column.is_valid().cast(pa.int8())] if column.null_count else []
    if pa.types.is_struct(column.type):
        for field in column.flatten():
            keys += order_keys(field)
        return keys
    if column.null_count == len(column):
        return keys
    if column.null_count:
        column = column.fill_null(column.drop_null()[0])  # any value: the key before this one decides
    if pa.types.is_floating(column.type):
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            keys.append(nan.cast(pa.int8()))
            column = pc.if_else(nan, pa.scalar(0.0, column.type), column)
    elif pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    return [*keys, column]


def extreme(old: pa.Array, new: pa.Array, *, largest: bool) -> pa.Array:
    """Row by row, the larger or the smaller of two values; if one is null, the other one."""
    wins = _greater(new, old) if largest else _greater(old, new)
    stored, given = (column.is_valid().to_numpy(zero_copy_only=False) for column in (old, new))
    count = len(new)
    places = np.where(given & (wins | ~stored), np.arange(count, 2 * count), np.arange(count))
    return pa.concat_arrays([old, new]).take(pa.array(places))


def _greater(left: pa.Array, right: pa.Array) -> Mask:
    """Row by row, whether ``left`` comes behind ``right``."""
    # Together, so that both get the same keys.
    keys = order_keys(pa.concat_arrays([left, right]))
    count = len(left)
    found = np.zeros(count, dtype=np.bool_)
    undecided = np.ones(count, dtype=np.bool_)
    for key in keys:
        ours, theirs = key.slice(0, count), key.slice(count)
        found |= undecided & pc.greater(ours, theirs).to_numpy(zero_copy_only=False)
        undecided &= pc.equal(ours, theirs).to_numpy(zero_copy_only=False)
    return found
