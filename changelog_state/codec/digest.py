"""A digest of rows of bytes that does not depend on how they were cut into chunks.

The values of a column and their lengths go into two hashes of their own, so that a chunk is hashed as the buffers
that Arrow has it in, without work per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["EMPTY_DIGEST", "PairDigest", "RowDigest"]

_BYTES = 16
_ABSENT = -1


class RowDigest:
    """Rows of so many binary columns, in the order in which they are fed; null is absent."""

    def __init__(self, columns: int) -> None:
        self._hashes = tuple((blake2b(digest_size=_BYTES), blake2b(digest_size=_BYTES)) for _ in range(columns))
        self.count = 0

    def update_columns(self, *columns: pa.Array) -> None:
        self.count += len(columns[0])
        for (data, lengths), column in zip(self._hashes, columns, strict=True):
            data.update(_data(column.drop_null() if column.null_count else column))
            lengths.update(_lengths(column))

    def digest(self) -> bytes:
        whole = blake2b(self.count.to_bytes(8, "big"), digest_size=_BYTES)
        for data, lengths in self._hashes:
            whole.update(data.digest())
            whole.update(lengths.digest())
        return whole.digest()


class PairDigest(RowDigest):
    """Pairs of (key, value or absent). They are fed in ascending order of the keys, which makes it canonical."""

    def __init__(self) -> None:
        super().__init__(2)
        self._last_key = b""

    def update(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Add pairs; keys must go on ascending from call to call."""
        self.update_columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))

    def update_columns(self, *columns: pa.Array) -> None:
        """The same for binary arrays."""
        keys = columns[0]
        if not len(keys):
            return
        ascending = pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1)), min_count=0).as_py()
        if keys.null_count or not ascending or keys[0].as_py() <= self._last_key:
            raise ValueError("record keys are not strictly ascending")
        self._last_key = keys[-1].as_py()
        super().update_columns(*columns)


def _offsets(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    buffer = column.buffers()[1]
    return np.frombuffer(buffer, "<i4", len(column) + 1, 4 * column.offset)


def _data(column: pa.Array) -> memoryview:
    """All values of the column, one behind the other."""
    data = column.buffers()[2]
    if data is None or not len(column):
        return memoryview(b"")
    offsets = _offsets(column)
    return memoryview(data)[offsets[0] : offsets[-1]]


def _lengths(column: pa.Array) -> bytes:
    lengths = np.diff(_offsets(column)).astype("<i4")
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = _ABSENT
    return lengths.tobytes()


EMPTY_DIGEST = PairDigest().digest()
