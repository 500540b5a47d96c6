"""A partition's state in its local store: data, before-images, marker and position.

Everything that belongs together is written together, in one atomic batch. A batch that is too large is split:
every part holds data and images of the same keys; marker and position are only in the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from changelog_state.codec.digest import PairDigest
from changelog_state.codec.kinds import DATA, IMAGE, MARKER, TIMER
from changelog_state.faults import fault_point
from changelog_state.store.base import Store, next_prefix
from changelog_state.store.images import BatchImages, image_key, image_prefix, pack_images
from changelog_state.store.meta import META_KEY, StoreMeta

__all__ = ["Chunk", "StateStore"]

_WITH_IMAGES = frozenset((DATA, TIMER))


@dataclass(frozen=True)
class Chunk:
    """Changes of a batch, in ascending order of their record keys; not empty."""

    keys: list[bytes]
    values: list[bytes | None]
    """None deletes."""
    images: bytes
    """What they replace, packed (see ``images.py``)."""


class StateStore:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.reload()

    def reload(self) -> None:
        """Read marker and meta again, after something else than this object has written to the store."""
        stored = self.store.get(META_KEY)
        self.meta = StoreMeta.decode(stored) if stored is not None else None
        self.marker = self.store.get(MARKER)
        self._images: BatchImages | None = None

    def read(self, keys: list[bytes]) -> list[bytes | None]:
        """Values as they are now."""
        return self.store.get_many(keys)

    def read_before(self, keys: list[bytes]) -> list[bytes | None]:
        """Values as they were before the marker's batch."""
        changed = self._last_images().lookup(keys) if self._has_images() else {}
        current = iter(self.store.get_many([key for key in keys if key not in changed]))
        return [changed[key] if key in changed else next(current) for key in keys]

    def scan_prefix(self, prefix: bytes, *, before: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose record key starts with ``prefix``, in order; ``before``: as in ``read_before``."""
        entries = self.store.scan(prefix, next_prefix(prefix))
        if not before or not self._has_images():
            yield from entries
            return
        merged = {**dict(entries), **self._last_images().below_prefix(prefix)}
        yield from ((key, value) for key, value in sorted(merged.items()) if value is not None)

    def commit(self, chunks: Iterable[Chunk], marker: bytes, meta: StoreMeta) -> None:
        """Write one batch that the changelog already holds.

        1. Each chunk: data, and what it replaces.
        2. With the last chunk: marker, position, catch-up time; and the images of earlier batches go, which until
           then belong to the marker that stands.
        """
        assert meta.images_begin is not None
        batch = self.store.batch()
        first = True
        for chunk in chunks:
            if not first:
                self.store.write(batch)
                fault_point("store.between_chunks")
                batch = self.store.batch()
            first = False
            put, delete = batch.put, batch.delete
            for key, value in zip(chunk.keys, chunk.values, strict=True):
                if value is None:
                    delete(key)
                else:
                    put(key, value)
            put(image_key(meta.images_begin, chunk.keys[0]), chunk.images)
        batch.delete_range(IMAGE, image_prefix(meta.images_begin))
        batch.put(MARKER, marker)
        batch.put(META_KEY, meta.encode())
        self.store.write(batch)
        self._set(marker, meta)

    def replay(
        self,
        entries: dict[bytes, bytes | None],
        meta: StoreMeta,
        *,
        images_begin: int | None = None,
    ) -> None:
        """Write the latest value per key of a stretch of the changelog, and the position behind it.

        With ``images_begin`` the stretch belongs to the last batch, whose keys ascend: what it replaces is kept.
        Images that are already there stay, since a crash may have left the data newer than the position.
        """
        batch = self.store.batch()
        put, delete = batch.put, batch.delete
        if images_begin is not None:
            batch.delete_range(IMAGE, image_prefix(images_begin))
            last_key = BatchImages(self.store, images_begin).last_key()
            keys = sorted(key for key in entries if key[:1] in _WITH_IMAGES and key > last_key)
            if keys:
                put(image_key(images_begin, keys[0]), pack_images(keys, self.store.get_many(keys)))
        for key, value in entries.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        put(META_KEY, meta.encode())
        self.store.write(batch)
        self._set(entries.get(MARKER, self.marker), meta)

    def clear(self, meta: StoreMeta) -> None:
        """Forget all state that the changelog has just been told to forget."""
        batch = self.store.batch()
        for kind in (DATA, TIMER, IMAGE):
            batch.delete_range(kind, _after_kind(kind))
        batch.delete(MARKER)
        batch.put(META_KEY, meta.encode())
        self.store.write(batch)
        self._set(None, meta)

    def update_meta(self, **changes: object) -> None:
        assert self.meta is not None
        meta = replace(self.meta, **changes)  # type: ignore[arg-type]
        batch = self.store.batch()
        batch.put(META_KEY, meta.encode())
        self.store.write(batch)
        self._set(self.marker, meta)

    def images_digest(self, begin: int) -> bytes:
        """The digest of all (key, previous value) of the batch that began there."""
        digest = PairDigest()
        for keys, previous in BatchImages(self.store, begin).chunks():
            digest.update(keys, previous)
        return digest.digest()

    def _has_images(self) -> bool:
        return self.meta is not None and self.meta.images_begin is not None

    def _last_images(self) -> BatchImages:
        assert self.meta is not None
        assert self.meta.images_begin is not None
        if self._images is None:
            self._images = BatchImages(self.store, self.meta.images_begin)
        return self._images

    def _set(self, marker: bytes | None, meta: StoreMeta) -> None:
        self.marker, self.meta, self._images = marker, meta, None


def _after_kind(kind: bytes) -> bytes:
    return bytes([kind[0] + 1])
