"""Pieces of encoded values: binary arrays with one entry per value, made from numpy without a copy per entry.

A null piece contributes no bytes. An encoded value is its pieces, one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Mask", "join_pieces", "offsets_of", "ragged_piece", "validity", "wide_piece"]

Mask: TypeAlias = npt.NDArray[np.bool_]

_NULL_IS_NOTHING = pc.JoinOptions(null_handling="replace", null_replacement="")
_SEPARATOR = pa.scalar(b"", pa.binary())


def wide_piece(data: npt.NDArray[Any], width: int, present: Mask | None) -> pa.Array:
    """Entries of the same width. ``data`` holds their bytes, one entry behind the other."""
    count = data.nbytes // width
    offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
    return _binary(offsets, np.ascontiguousarray(data), present)


def ragged_piece(data: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64], present: Mask | None) -> pa.Array:
    """Entries of these sizes."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return _binary(offsets, data, present)


def join_pieces(pieces: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    """The bytes of each value."""
    return pc.binary_join_element_wise(*pieces, _SEPARATOR, options=_NULL_IS_NOTHING)


def validity(column: pa.Array) -> Mask | None:
    """Where a column has values; None: everywhere."""
    if not column.null_count:
        return None
    found: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def offsets_of(values: pa.Array) -> npt.NDArray[np.int32]:
    """Where the entries of a binary array begin, and where the last one ends, in its buffer of bytes."""
    if not len(values):
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)


def _binary(offsets: npt.NDArray[np.int32], data: npt.NDArray[Any], present: Mask | None) -> pa.Array:
    bitmap = None if present is None else pa.array(present).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])
