"""A digest of (key, value or absent) pairs that does not depend on how they were cut into chunks.

Pairs are fed in ascending key order, which makes the digest canonical. Keys, values and their lengths go into
four hashes of their own, so that a chunk costs a few joins instead of work per pair.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

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
        if not keys:
            return
        if keys[0] <= self._last_key or any(map(_not_ascending, keys, keys[1:])):
            raise ValueError("record keys are not strictly ascending")
        self._last_key = keys[-1]
        self.count += len(keys)
        key_bytes, key_lengths, value_bytes, value_lengths = self._hashes
        key_bytes.update(b"".join(keys))
        key_lengths.update(array("i", map(len, keys)).tobytes())
        value_bytes.update(b"".join([value for value in values if value is not None]))
        value_lengths.update(array("i", [_ABSENT if value is None else len(value) for value in values]).tobytes())

    def digest(self) -> bytes:
        whole = blake2b(self.count.to_bytes(8, "big"), digest_size=_BYTES)
        for part in self._hashes:
            whole.update(part.digest())
        return whole.digest()


def _not_ascending(first: bytes, second: bytes) -> bool:
    return first >= second


EMPTY_DIGEST = PairDigest().digest()
