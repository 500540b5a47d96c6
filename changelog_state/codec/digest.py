"""A digest of (key, value or absent) pairs that does not depend on how they were cut into chunks.

Pairs are fed in ascending key order, which makes the digest canonical. Keys, values and their lengths go into
four hashes of their own, so that a chunk is hashed as the buffers that Arrow has it in, without work per pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["EMPTY_DIGEST", "PairDigest"]

_BYTES = 16
_ABSENT = -1


class PairDigest:
    def __init__(self) -> None:
        self._hashes = tuple(blake2b(digest_size=_BYTES) for _ in range(4))
        self._last_key = b""
        self.count = 0

    def update(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Add pairs; keys must go on ascending from call to call."""
        self.update_columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))

    def update_columns(self, keys: pa.Array, values: pa.Array) -> None:
        """The same for binary arrays; null is absent."""
        if not len(keys):
            return
        ascending = pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1)), min_count=0).as_py()
        if keys.null_count or not ascending or keys[0].as_py() <= self._last_key:
            raise ValueError("record keys are not strictly ascending")
        self._last_key = keys[-1].as_py()
        self.count += len(keys)
        key_bytes, key_lengths, value_bytes, value_lengths = self._hashes
        key_bytes.update(_data(keys))
        key_lengths.update(_lengths(keys))
        value_bytes.update(_data(values.drop_null() if values.null_count else values))
        value_lengths.update(_lengths(values))

    def digest(self) -> bytes:
        whole = blake2b(self.count.to_bytes(8, "big"), digest_size=_BYTES)
        for part in self._hashes:
            whole.update(part.digest())
        return whole.digest()


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
