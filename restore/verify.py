"""The proof that a local store is what its changelog says: fold the log up to the store's position, and compare."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import Marker
from changelog_state.changelog.topic import Topic
from changelog_state.config import StoreConfig
from changelog_state.errors import CorruptStoreError
from changelog_state.store.base import Store
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.offline import offline_view
from changelog_state.store.rocksdb import RocksMemory, RocksStore
from changelog_state.store.state_store import StateStore
from restore.bulk_pool import BulkPool
from restore.catch_up import catch_up
from restore.comparison import Comparison, Difference, compare
from restore.plan import LogBounds, Need, plan_partition
from restore.replay import ReplayProgress

__all__ = ["Result", "Verdict", "verify_partition"]

_CACHE_MB, _WRITE_BUFFERS_MB = 32, 64
_QUEUE_MB = 64
_STRETCH_BYTES = 16 * 1024 * 1024
_NOT_COMPARABLE = (Need.OTHER_TOPIC, Need.OUTSIDE_LOG)


class Result(StrEnum):
    EQUAL = "equal"
    DIFFERENT = "different"
    CORRUPT = "corrupt"
    NOT_COMPARABLE = "not comparable"
    NO_STORE = "no local store"

    @property
    def proven_wrong(self) -> bool:
        return self not in (Result.EQUAL, Result.NO_STORE)


@dataclass(frozen=True)
class Verdict:
    partition: int
    result: Result
    reason: str = ""
    """What is wrong, if it is not in the comparison."""
    position: int | None = None
    comparison: Comparison | None = None


def verify_partition(
    config: StoreConfig,
    topic: Topic,
    partition: int,
    path: Path,
    most_differences: int,
    on_progress: Callable[[ReplayProgress], None],
    pool: BulkPool,
) -> Verdict:
    """
    1. Look at the store as it is on disk; while an agent runs, that is what it has flushed.
    2. Fold the changelog up to the store's position into a temporary store.
    3. Compare all records. If they differ and the log goes on, find out which keys it goes on with: compaction may
       have removed what the store rightly has of those, so they decide nothing.
    4. Check the before-images against the marker's digest.
    """
    try:
        with offline_view(path) as state, tempfile.TemporaryDirectory(prefix="changelog-state-verify-") as scratch:
            if state is None or state.meta is None:
                return Verdict(partition, Result.NO_STORE)
            return _verify(config, topic, partition, state, Path(scratch), most_differences, on_progress, pool)
    except CorruptStoreError as error:
        return Verdict(partition, Result.CORRUPT, str(error))


def _verify(
    config: StoreConfig,
    topic: Topic,
    partition: int,
    state: StateStore,
    scratch: Path,
    most_differences: int,
    on_progress: Callable[[ReplayProgress], None],
    pool: BulkPool,
) -> Verdict:
    meta = state.meta
    assert meta is not None
    need = _need(config, topic, partition, state)
    if need in _NOT_COMPARABLE:
        return Verdict(partition, Result.NOT_COMPARABLE, str(need), meta.position)
    directory = PartitionDirectory(scratch / "fold", RocksMemory(_CACHE_MB, _WRITE_BUFFERS_MB))
    fold = catch_up(config, topic, partition, directory, None, meta.position, on_progress, pool=pool)
    folded = fold.state.store
    try:
        comparison = compare(state.store, folded, most_differences)
        if comparison.differences:
            later = _keys_behind(config, partition, meta.position, scratch / "later")
            try:
                comparison = compare(
                    state.store, folded, most_differences, lambda found: _may_be_due(found, later, need)
                )
            finally:
                later.close()
    finally:
        folded.close()
    reason = _wrong_images(state)
    result = Result.DIFFERENT if comparison.differences or reason else Result.EQUAL
    return Verdict(partition, result, reason, meta.position, comparison)


def _need(config: StoreConfig, topic: Topic, partition: int, state: StateStore) -> Need:
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        low, high = reader.bounds()
    log = LogBounds(topic.topic_id, low, high, topic.delete_retention_ms)
    return plan_partition(state.meta, log, int(time.time() * 1000)).need


def _may_be_due(found: Difference, later: Store, need: Need) -> bool:
    """A stale store may also hold keys whose deletion has left the log by now."""
    return later.get(found.record_key) is not None or (need is Need.STALE and found.changelog is None)


def _keys_behind(config: StoreConfig, partition: int, position: int, path: Path) -> RocksStore:
    """Every key that has a record at or behind the position, as a store on disk: there may be many."""
    keys = RocksStore(path, RocksMemory(_CACHE_MB, _WRITE_BUFFERS_MB))
    try:
        with ChangelogReader(config, config.changelog_topic, partition, queue_mb=_QUEUE_MB) as reader:
            _, high = reader.bounds()  # only now: whatever the fold has missed is below this
            for messages in reader.stretches(position, high, _STRETCH_BYTES):
                batch = keys.batch()
                for message in messages:
                    batch.put(message.key(), b"")
                keys.write(batch)
    except BaseException:
        keys.close()
        raise
    return keys


def _wrong_images(state: StateStore) -> str:
    assert state.meta is not None
    begin = state.meta.images_begin
    if not state.meta.images_complete or begin is None or state.marker is None:
        return ""
    marker = Marker.decode(state.marker)
    if marker.begin == begin and state.images_digest(begin) == marker.images:
        return ""
    return f"the values from before batch {marker.batch} are not those that its marker tells"
