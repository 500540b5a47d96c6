"""A partition's state in its local store: data, before-images, marker and position.

Everything that belongs together is written together, in one atomic batch. A batch that is too large is split:
every part holds data and images of the same keys; marker and position are only in the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from changelog_state.codec.digest import PairDigest
from changelog_state.codec.keys import DATA, IMAGE, MARKER, TIMER
from changelog_state.faults import fault_point
from changelog_state.store.base import Store, next_prefix
from changelog_state.store.meta import META_KEY, StoreMeta

__all__ = ["Chunk", "StateStore"]

Chunk = tuple[list[bytes], list[bytes | None], list[bytes | None]]
"""Record keys, new values (None deletes), previous values (None: absent)."""

_ABSENT = b"\x00"
_PRESENT = b"\x01"
_DIGEST_CHUNK = 5_000
_WITH_IMAGES = frozenset((DATA, TIMER))


class StateStore:
    def __init__(self, store: Store) -> None:
        self.store = store
        stored = store.get(META_KEY)
        self.meta = StoreMeta.decode(stored) if stored is not None else None
        self.marker = store.get(MARKER)

    def read(self, keys: list[bytes]) -> list[bytes | None]:
        """Values as they are now."""
        return self.store.get_many(keys)

    def read_before(self, keys: list[bytes]) -> list[bytes | None]:
        """Values as they were before the marker's batch."""
        begin = self.meta.images_begin if self.meta else None
        if begin is None:
            return self.read(keys)
        prefix = _image_prefix(begin)
        images = self.store.get_many([prefix + key for key in keys])
        unchanged = [key for key, image in zip(keys, images, strict=True) if image is None]
        current = iter(self.store.get_many(unchanged))
        return [next(current) if image is None else _image_value(image) for image in images]

    def scan_prefix(self, prefix: bytes, *, before: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose record key starts with ``prefix``, in order; ``before``: as in ``read_before``."""
        entries = self.store.scan(prefix, next_prefix(prefix))
        begin = self.meta.images_begin if self.meta else None
        if not before or begin is None:
            yield from entries
            return
        merged: dict[bytes, bytes | None] = dict(entries)
        image_prefix = _image_prefix(begin)
        for key, image in self.store.scan(image_prefix + prefix, next_prefix(image_prefix + prefix)):
            merged[key[len(image_prefix) :]] = _image_value(image)
        yield from ((key, value) for key, value in sorted(merged.items()) if value is not None)

    def commit(self, chunks: Iterable[Chunk], marker: bytes, meta: StoreMeta) -> None:
        """Write one batch that the changelog already holds.

        1. Images of earlier batches go: the changelog has passed the point where they could be asked for.
        2. Each chunk: data, and what it replaces.
        3. With the last chunk: marker, position, catch-up time.
        """
        assert meta.images_begin is not None
        prefix = _image_prefix(meta.images_begin)
        batch = self.store.batch()
        batch.delete_range(IMAGE, prefix)
        first = True
        for keys, values, previous in chunks:
            if not first:
                self.store.write(batch)
                fault_point("store.between_chunks")
                batch = self.store.batch()
            first = False
            put, delete = batch.put, batch.delete
            for key, value, old in zip(keys, values, previous, strict=True):
                if value is None:
                    delete(key)
                else:
                    put(key, value)
                put(prefix + key, _ABSENT if old is None else _PRESENT + old)
        batch.put(MARKER, marker)
        batch.put(META_KEY, meta.encode())
        self.store.write(batch)
        self.marker, self.meta = marker, meta

    def replay(
        self,
        entries: dict[bytes, bytes | None],
        meta: StoreMeta,
        *,
        images_begin: int | None = None,
    ) -> None:
        """Write the latest value per key of a stretch of the changelog, and the position behind it.

        With ``images_begin`` the stretch belongs to the last batch: what it replaces is kept. An image that is
        already there stays, since a crash may have left the data newer than the position.
        """
        batch = self.store.batch()
        put, delete = batch.put, batch.delete
        if images_begin is not None:
            prefix = _image_prefix(images_begin)
            batch.delete_range(IMAGE, prefix)
            keys = [key for key in entries if key[:1] in _WITH_IMAGES]
            images = self.store.get_many([prefix + key for key in keys])
            new = [key for key, image in zip(keys, images, strict=True) if image is None]
            for key, old in zip(new, self.store.get_many(new), strict=True):
                put(prefix + key, _ABSENT if old is None else _PRESENT + old)
        for key, value in entries.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        put(META_KEY, meta.encode())
        self.store.write(batch)
        if MARKER in entries:
            self.marker = entries[MARKER]
        self.meta = meta

    def clear(self, meta: StoreMeta) -> None:
        """Forget all state that the changelog has just been told to forget."""
        batch = self.store.batch()
        for kind in (DATA, TIMER, IMAGE):
            batch.delete_range(kind, _after_kind(kind))
        batch.delete(MARKER)
        batch.put(META_KEY, meta.encode())
        self.store.write(batch)
        self.marker, self.meta = None, meta

    def update_meta(self, **changes: object) -> None:
        assert self.meta is not None
        meta = replace(self.meta, **changes)  # type: ignore[arg-type]
        batch = self.store.batch()
        batch.put(META_KEY, meta.encode())
        self.store.write(batch)
        self.meta = meta

    def images_digest(self, begin: int) -> bytes:
        """The digest of all (key, previous value) of the batch that began there."""
        prefix = _image_prefix(begin)
        digest = PairDigest()
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for key, image in self.store.scan(prefix, next_prefix(prefix)):
            keys.append(key[len(prefix) :])
            values.append(_image_value(image))
            if len(keys) >= _DIGEST_CHUNK:
                digest.update(keys, values)
                keys, values = [], []
        digest.update(keys, values)
        return digest.digest()


def _image_prefix(begin: int) -> bytes:
    return IMAGE + begin.to_bytes(8, "big")


def _image_value(image: bytes) -> bytes | None:
    return None if image == _ABSENT else image[1:]


def _after_kind(kind: bytes) -> bytes:
    return bytes([kind[0] + 1])
