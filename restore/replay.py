"""The replay engine: a stretch of the changelog into the local store.

Restoring a partition and following it are the same thing with another end.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

from confluent_kafka import Message

from changelog_state.changelog.entries import entries_of, size_of_records
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import Marker
from changelog_state.codec.kinds import MARKER
from changelog_state.config import LogSettings
from changelog_state.faults import fault_point
from changelog_state.store.meta import StoreMeta
from changelog_state.store.state_store import StateStore
from restore.bulk import is_long

__all__ = ["Bulk", "LastMarker", "ReplayProgress", "apply_transaction", "find_last_marker", "replay"]

logger = logging.getLogger(__name__)

_QUEUE_MB = 32
_STRETCH_BYTES = 16 * 1024 * 1024

Bulk = Callable[[StateStore, StoreMeta, int, int, Callable[[int, int, int], None]], None]
"""The fast way over a long stretch (``bulk.bulk_restore``): store, its meta, start, end, and whom to tell."""


@dataclass(frozen=True)
class ReplayProgress:
    """How far one partition's replay is: offsets [start, end), of which those below ``position`` are done."""

    start: int
    position: int
    end: int
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """Since it began."""
    need: str = ""
    """Why it is done, for people."""


@dataclass(frozen=True)
class LastMarker:
    offset: int
    marker: Marker


def find_last_marker(config: LogSettings, partition: int, end: int) -> LastMarker | None:
    """The marker of the last batch below ``end``; None if there is none, or the store was cleared since."""
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        message = reader.find_last(lambda record: record.key() == MARKER, end)
    if message is None or message.value() is None:
        return None
    return LastMarker(message.offset(), Marker.decode(message.value()))


def replay(
    config: LogSettings,
    partition: int,
    state: StateStore,
    *,
    topic_id: str,
    start: int,
    end: int,
    caught_up_ms: int,
    own_from: int | None = None,
    need: str = "",
    bulk: Bulk | None = None,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
) -> ReplayProgress:
    """Bring the store from offset ``start`` to ``end``; what is durable stays if it is cut short.

    1. Find the last marker: from its batch's begin on, what is replaced is kept as before-images.
    2. A long way up to there is done in bulk.
    3. The rest: read, keep the latest value per key of each stretch, write it together with the position behind it.
    4. At the end, check the images against the marker's digest. Compaction may have removed values that they
       need; then that batch cannot be replayed on this store, and the store says so.
    ``own_from``: from there on are the caller's own records (its claim), which are read but are nothing to restore.
    A log whose store keeps no images is a log without a last marker.
    """
    tracker = _Tracker(ReplayProgress(start, start, end if own_from is None else own_from, need=need), on_progress)
    last = find_last_marker(config, partition, end) if config.keeps_images else None
    # A rebuild that is cut short goes on later: what it has read was not older than this.
    meta = state.meta or StoreMeta(topic_id=topic_id, position=start, caught_up_ms=caught_up_ms)
    without_images = end if last is None else min(end, last.marker.begin)
    if bulk is not None and is_long(without_images - start):
        bulk(state, replace(meta, images_begin=None, images_complete=False), start, without_images, tracker.advance)
        assert state.meta is not None
        meta, start = state.meta, without_images
    if start < end:
        with ChangelogReader(config, config.changelog_topic, partition, queue_mb=_QUEUE_MB) as reader:
            for messages in reader.stretches(start, end, _STRETCH_BYTES):
                for stretch, begin in _split_at_begin(messages, last):
                    meta = _apply(config, state, meta, stretch, begin)
                    fault_point("replay.between_chunks")
                tracker.read(messages)
    meta = replace(meta, position=max(end, meta.position), caught_up_ms=caught_up_ms)
    if last is not None and not (meta.images_complete and meta.images_begin == last.marker.begin):
        complete = state.images_digest(last.marker.begin) == last.marker.images
        meta = replace(meta, images_begin=last.marker.begin, images_complete=complete)
        if not complete:
            logger.warning(
                "%s partition %d: batch %d cannot be replayed on the rebuilt store: compaction has removed "
                "values from before it",
                config.name,
                partition,
                last.marker.batch,
            )
    state.replay({}, meta)
    return tracker.finish()


class _Tracker:
    """Counts what was read, and tells it."""

    def __init__(self, progress: ReplayProgress, tell: Callable[[ReplayProgress], None]) -> None:
        self._progress = progress
        self._tell = tell
        self._begun = time.monotonic()
        tell(progress)

    def advance(self, offsets: int, records: int, size: int) -> None:
        known = self._progress
        self._progress = replace(
            known,
            position=min(known.end, known.position + offsets),
            records=known.records + records,
            bytes=known.bytes + size,
            seconds=time.monotonic() - self._begun,
        )
        self._tell(self._progress)

    def read(self, messages: list[Message]) -> None:
        counted = messages[: bisect_left(messages, self._progress.end, key=Message.offset)]
        behind = messages[-1].offset() + 1
        self.advance(behind - self._progress.position, len(counted), size_of_records(counted))

    def finish(self) -> ReplayProgress:
        self.advance(self._progress.end - self._progress.position, 0, 0)
        return self._progress


def _split_at_begin(messages: list[Message], last: LastMarker | None) -> list[tuple[list[Message], int | None]]:
    """The part before the last batch, and the part from its begin on, which needs images."""
    if not messages:
        return []
    if last is None or messages[-1].offset() < last.marker.begin:
        return [(messages, None)]
    cut = bisect_left(messages, last.marker.begin, key=Message.offset)
    parts = [(messages[:cut], None), (messages[cut:], last.marker.begin)]
    return [part for part in parts if part[0]]


def apply_transaction(config: LogSettings, state: StateStore, messages: list[Message]) -> None:
    """All records of one transaction, onto a store that has everything before it; its images are complete then.

    A batch's transaction ends with its marker. Any other (a claim) leaves the images of the last batch as they are.
    What compaction has left of earlier batches may come along; it is no part of the last one's images.
    """
    assert state.meta is not None
    if not config.keeps_images:
        _apply(config, state, state.meta, messages, None)
        return
    ending = messages[-1]
    if ending.key() != MARKER:
        state.replay(entries_of(config, messages), replace(state.meta, position=ending.offset() + 1))
        return
    last = None if ending.value() is None else LastMarker(ending.offset(), Marker.decode(ending.value()))
    meta = state.meta
    for stretch, begin in _split_at_begin(messages, last):
        meta = _apply(config, state, meta, stretch, begin)
    if last is not None:
        state.update_meta(images_complete=state.images_digest(last.marker.begin) == last.marker.images)


def _apply(
    config: LogSettings, state: StateStore, meta: StoreMeta, stretch: list[Message], begin: int | None
) -> StoreMeta:
    entries = entries_of(config, stretch)
    meta = replace(meta, position=stretch[-1].offset() + 1, images_begin=begin, images_complete=False)
    if MARKER in entries:
        offset = next(message.offset() for message in reversed(stretch) if message.key() == MARKER)
        meta = replace(meta, marker_offset=offset if entries[MARKER] is not None else None)
    state.replay(entries, meta, images_begin=begin, with_due=config.keeps_images)
    return meta
