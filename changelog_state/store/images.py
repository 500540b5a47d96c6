"""Before-images of a batch: what its changes replaced, one record per chunk of changes.

A chunk's keys ascend, and so do the chunks of a batch, whoever writes them: the owner's commit, or a replay that
goes on where a killed process stopped. So the chunk that holds a key is found by its first key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import pyarrow as pa

from changelog_state.codec.kinds import IMAGE
from changelog_state.store.base import Store, next_prefix

__all__ = ["BatchImages", "image_key", "image_prefix", "pack_columns", "pack_images"]

_SCHEMA = pa.schema([("key", pa.binary()), ("previous", pa.binary())])


def image_prefix(begin: int) -> bytes:
    """What the images of the batch that began at this offset start with."""
    return IMAGE + begin.to_bytes(8, "big")


def image_key(begin: int, first_key: bytes) -> bytes:
    return image_prefix(begin) + first_key


def pack_columns(keys: pa.Array, previous: pa.Array) -> bytes:
    """Record keys in ascending order and the values they had (null: absent), as one Arrow message."""
    return pa.record_batch([keys, previous], schema=_SCHEMA).serialize().to_pybytes()  # type: ignore[no-any-return]


def pack_images(keys: Sequence[bytes], previous: Sequence[bytes | None]) -> bytes:
    return pack_columns(pa.array(keys, pa.binary()), pa.array(previous, pa.binary()))


class BatchImages:
    """The images of one batch in a store, read chunk by chunk."""

    def __init__(self, store: Store, begin: int) -> None:
        self._store = store
        self._begin = begin
        prefix = image_prefix(begin)
        self._first_keys = [key[len(prefix) :] for key in store.scan_keys(prefix, next_prefix(prefix))]
        self._loaded: tuple[int, dict[bytes, bytes | None]] = (-1, {})
        self._keys: list[bytes] = []
        """Of the chunk that is loaded."""

    def last_key(self) -> bytes:
        """Keys up to this one have their image; empty if there is none."""
        return max(self._chunk(len(self._first_keys) - 1)) if self._first_keys else b""

    def chunks(self) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        """All keys and previous values, in ascending order of the keys."""
        for number in range(len(self._first_keys)):
            images = self._chunk(number)
            yield list(images), list(images.values())

    def lookup(self, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """The previous values of those keys that the batch has changed. Quick for ascending keys."""
        found: dict[bytes, bytes | None] = {}
        for key in keys:
            number = bisect_right(self._first_keys, key) - 1
            images = self._chunk(number) if number >= 0 else {}
            if key in images:
                found[key] = images[key]
        return found

    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
        """Changed keys of [start, end) and their previous values, in ascending order of the keys."""
        for number in range(max(0, bisect_right(self._first_keys, start) - 1), len(self._first_keys)):
            if end is not None and self._first_keys[number] >= end:
                return
            images, keys = self._chunk(number), self._keys
            stop = len(keys) if end is None else bisect_left(keys, end)
            for key in keys[bisect_left(keys, start) : stop]:
                yield key, images[key]

    def _chunk(self, number: int) -> dict[bytes, bytes | None]:
        if self._loaded[0] != number:
            data = self._store.get(image_key(self._begin, self._first_keys[number]))
            assert data is not None, "images stay until the next batch is written, under the same lock"
            columns = pa.ipc.read_record_batch(pa.py_buffer(data), _SCHEMA).columns
            self._keys, previous = (column.to_pylist() for column in columns)
            self._loaded = number, dict(zip(self._keys, previous, strict=True))
        return self._loaded[1]
