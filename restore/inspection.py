"""One partition's store, described: what it knows about itself, and what it holds."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from changelog_state.changelog.record import Claim, Marker
from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.kinds import CLAIM, DATA, SCHEMA
from changelog_state.errors import CorruptStoreError
from changelog_state.store.base import Store
from changelog_state.store.directory import size_of
from changelog_state.store.offline import offline_view
from changelog_state.store.state_store import StateStore
from restore.entries import LOGGED_KINDS, Entry, SchemaOf, decode_entry, decode_record, schemas_in

__all__ = ["StoreView", "codec_of", "entries_of_key", "inspect_partition"]


@dataclass
class StoreView:
    partition: int
    path: Path
    bytes: int = 0
    files: int = 0
    topic_id: str | None = None
    position: int | None = None
    caught_up_ms: int | None = None
    format: int | None = None
    marker: dict[str, Any] | None = None
    claim: dict[str, Any] | None = None
    images: dict[str, Any] | None = None
    schemas: list[dict[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    sample: list[dict[str, Any]] = field(default_factory=list)
    damage: str | None = None

    @property
    def key_types(self) -> list[str] | None:
        return None if self.claim is None else self.claim["key_types"]

    @property
    def caught_up(self) -> str | None:
        """For people, in UTC."""
        if not self.caught_up_ms:
            return None
        return datetime.fromtimestamp(self.caught_up_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path), "caught_up": self.caught_up}


def inspect_partition(path: Path, partition: int, sample: int) -> StoreView:
    """Everything is read once: that counts it, and shows damage wherever it is."""
    view = StoreView(partition, path / "db", *size_of(path / "db"))
    try:
        with offline_view(path) as state:
            if state is not None:
                _describe(state, view)
                _count(state.store, view, sample)
    except CorruptStoreError as error:
        view.damage = str(error)
    return view


def codec_of(store: Store) -> KeyCodec | None:
    """A store explains itself: its last claim says what its keys are. None if it was never claimed."""
    claim = store.get(CLAIM)
    return None if claim is None else KeyCodec(tuple(Claim.decode(claim).key_types))


def entries_of_key(path: Path, types: list[str], key: Any) -> list[Entry]:
    codec = KeyCodec(tuple(types))
    prefix = DATA + codec.encode(key)
    with offline_view(path) as state:
        if state is None:
            return []
        schemas = schemas_in(state.store)
        return [decode_entry(codec, found, data, schemas) for found, data in state.scan_prefix(prefix)]


def _describe(state: StateStore, view: StoreView) -> None:
    meta = state.meta
    if meta is not None:
        view.topic_id, view.position, view.caught_up_ms, view.format = (
            meta.topic_id,
            meta.position,
            meta.caught_up_ms,
            meta.format,
        )
        view.images = {"begin": meta.images_begin, "complete": meta.images_complete}
    if state.marker is not None:
        view.marker = vars(Marker.decode(state.marker))
    claim = state.store.get(CLAIM)
    view.claim = None if claim is None else vars(Claim.decode(claim))
    for key, schema in state.scan_prefix(SCHEMA):
        name = json.loads(schema).get("name", "")
        view.schemas.append({"fingerprint": key[1:].hex(), "name": name})


def _count(store: Store, view: StoreView, sample: int) -> None:
    """By kind; ``local`` is what the changelog has not (position, before-images).

    A reservoir keeps the sample fair; its seed is fixed, so that the same store shows the same.
    """
    codec = codec_of(store)
    counts: Counter[str] = Counter()
    chosen: list[tuple[bytes, bytes]] = []
    dice = random.Random(0)
    for key, data in store.scan(b"", None):
        name = LOGGED_KINDS.get(key[:1], "local")
        counts[name] += 1
        if not sample or key[:1] != DATA:
            continue
        if len(chosen) < sample:
            chosen.append((key, data))
        elif (place := dice.randrange(counts[name])) < sample:
            chosen[place] = key, data
    view.counts = dict(counts)
    view.sample = list(_decoded(codec, sorted(chosen), schemas_in(store)))


def _decoded(
    codec: KeyCodec | None, chosen: list[tuple[bytes, bytes]], schemas: SchemaOf
) -> Iterator[dict[str, Any]]:
    for key, data in chosen:
        yield {"expires_ms": None} | decode_record(codec, key, data, schemas)
