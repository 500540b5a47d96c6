"""A partition's local store, opened and brought up to an end of the log: what a claim, a read and the CLI share."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.topic import Topic
from changelog_state.config import LogSettings
from changelog_state.errors import CorruptStoreError, StoreError
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.meta import StoreMeta
from changelog_state.store.rocksdb import RocksStore
from changelog_state.store.state_store import StateStore
from restore.bulk import bulk_restore, is_long
from restore.bulk_pool import BulkPool
from restore.marker_check import marker_stands
from restore.plan import LogBounds, Need, PartitionPlan, plan_partition
from restore.replay import Bulk, ReplayProgress, replay

__all__ = ["CaughtUp", "catch_up"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CaughtUp:
    state: StateStore
    plan: PartitionPlan
    """What had to be done, and why."""
    done: ReplayProgress


def catch_up(
    config: LogSettings,
    topic: Topic,
    partition: int,
    directory: PartitionDirectory,
    opened: StateStore | None,
    end: int | None,
    on_progress: Callable[[ReplayProgress], None],
    *,
    own_from: int | None = None,
    pool: BulkPool | None = None,
) -> CaughtUp:
    """The local store, opened and replayed up to ``end`` (None: whatever is decided now).

    ``own_from``: the first of the caller's own records below ``end``. ``pool``: who does long stretches.
    """
    now_ms = int(time.time() * 1000)
    damaged = False
    try:
        state = opened or directory.open()
    except CorruptStoreError as error:
        damaged = True
        moved = directory.move_aside("corrupt")
        logger.error("%s partition %d: %s; moved to %s, rebuilding", config.name, partition, error, moved)
        state = directory.open()
    try:
        with ChangelogReader(config, config.changelog_topic, partition) as reader:
            low, high = reader.bounds()
            end = high if end is None else end
            log = LogBounds(topic.topic_id, low, end if own_from is None else own_from, topic.delete_retention_ms)
            plan = plan_partition(state.meta, log, now_ms, damaged=damaged)
            if not plan.need.from_scratch and not marker_stands(reader, state.meta, state.marker, end):
                plan = plan_partition(state.meta, log, now_ms, foreign=True)
        if state.meta is not None and plan.need.from_scratch:
            logger.warning("%s partition %d: local store not used: %s", config.name, partition, plan.need)
            state.store.close()
            directory.wipe()
            state = directory.open()
        since_ms = state.meta.caught_up_ms if state.meta is not None and not plan.need.from_scratch else now_ms
        with _interest(pool, state, plan):
            done = replay(
                config,
                partition,
                state,
                topic_id=topic.topic_id,
                start=plan.start,
                end=end,
                caught_up_ms=now_ms,
                own_from=own_from,
                need=str(plan.need),
                bulk=None if pool is None else _bulk(pool, config, partition, directory),
                on_progress=on_progress,
            )
        _refuse_if_too_slow(config, topic, partition, since_ms, state, directory)
    except BaseException:
        with contextlib.suppress(StoreError):
            state.store.close()
        raise
    if plan.need is not Need.NOTHING and done.records:
        logger.info(
            "%s partition %d restored: %s, %d records, %d bytes, offsets %d to %d",
            config.name,
            partition,
            plan.need,
            done.records,
            done.bytes,
            plan.start,
            plan.end,
        )
    return CaughtUp(state, plan, done)


def _refuse_if_too_slow(
    config: LogSettings,
    topic: Topic,
    partition: int,
    since_ms: int,
    state: StateStore,
    directory: PartitionDirectory,
) -> None:
    """What was read first may have been deleted since, and the deletion have left the log before it was reached."""
    took_ms = int(time.time() * 1000) - since_ms
    if took_ms <= topic.delete_retention_ms:
        return
    state.store.close()
    directory.wipe()
    raise StoreError(
        f"{config.name} partition {partition}: the store was brought up to date {took_ms} ms after it last was, but "
        f"deletions stay readable for delete.retention.ms={topic.delete_retention_ms} only; it is rebuilt from the "
        "beginning. If that is too slow as well, raise delete.retention.ms"
    )


def _interest(
    pool: BulkPool | None, state: StateStore, plan: PartitionPlan
) -> contextlib.AbstractContextManager[None]:
    if pool is None or not is_long(plan.offsets):
        return contextlib.nullcontext()
    assert isinstance(state.store, RocksStore)
    return pool.interest(state.store)


def _bulk(pool: BulkPool, config: LogSettings, partition: int, directory: PartitionDirectory) -> Bulk:
    def run(
        state: StateStore, meta: StoreMeta, start: int, end: int, on_progress: Callable[[int, int, int], None]
    ) -> None:
        bulk_restore(
            pool,
            config,
            partition,
            state,
            directory.bulk_path,
            meta=meta,
            start=start,
            end=end,
            on_progress=on_progress,
        )

    return run
