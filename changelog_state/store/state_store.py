"""A partition's state in its local store: data, before-images, marker and position.

Everything that belongs together is written together, in one atomic batch. A batch that is too large is split:
every part holds data and images of the same keys; marker and position are only in the last one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from changelog_state.codec.digest import PairDigest
from changelog_state.codec.kinds import DATA, EXPIRY, IMAGE, MARKER, TIMER
from changelog_state.faults import fault_point
from changelog_state.store.base import Store, next_prefix
from changelog_state.store.due_index import DueIndex, index_keys
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
    no_longer_due: Sequence[bytes] = ()
    """Where what they replace is in the index of what is due (see ``due_index.py``)."""
    due: Sequence[bytes] = ()
    """Where they are."""


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
        self.due_index = DueIndex(self.store)

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
        return self.scan_range(prefix, next_prefix(prefix), before=before)

    def scan_range(self, start: bytes, end: bytes | None, *, before: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Entries of [start, end) in order of their record keys; ``before``: as in ``read_before``."""
        entries = self.store.scan(start, end)
        if not before or not self._has_images():
            yield from entries
            return
        last = b""
        # Of two with the same key the image comes first, and counts.
        ranked = ((key, 0, value) for key, value in self._last_images().between(start, end))
        for key, _, value in heapq.merge(ranked, ((key, 1, value) for key, value in entries), key=itemgetter(0, 1)):
            if key != last and value is not None:
                yield key, value
            last = key

    def commit(
        self, chunks: Iterable[Chunk], marker: bytes, meta: StoreMeta, schemas: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Write one batch that the changelog already holds.

        1. Each chunk: data, and what it replaces.
        2. With the last chunk: new schemas, marker, position, catch-up time; and the images of earlier batches go,
           which until then belong to the marker that stands.
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
            self.due_index.added(chunk.due)
            for key in chunk.no_longer_due:
                delete(key)
            for key in chunk.due:
                put(key, b"")
            for key, value in zip(chunk.keys, chunk.values, strict=True):
                if value is None:
                    delete(key)
                else:
                    put(key, value)
            put(image_key(meta.images_begin, chunk.keys[0]), chunk.images)
        batch.delete_range(IMAGE, image_prefix(meta.images_begin))
        for key, schema in (schemas or {}).items():
            batch.put(key, schema)
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
        with_due: bool = True,
    ) -> None:
        """Write the latest value per key of a stretch of the changelog, and the position behind it.

        ``with_due``: and where they are in the index of what is due.
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
        due = list(index_keys(entries.items())) if with_due else []
        self.due_index.added(due)
        for key in due:
            put(key, b"")
        put(META_KEY, meta.encode())
        self.store.write(batch)
        self._set(entries.get(MARKER, self.marker), meta)

    def clear(self, meta: StoreMeta) -> None:
        """Forget all state that the changelog has just been told to forget."""
        batch = self.store.batch()
        for kind in (DATA, TIMER, IMAGE, EXPIRY):
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

    def images(self) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        """What the marker's batch has replaced: keys and previous values, in ascending order of the keys."""
        return self._last_images().chunks() if self._has_images() else iter(())

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
