"""Taking a partition: fence, then restore, then serve."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from changelog_state.changelog.control import verify_identity
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import Claim, StoreIdentity, schema_records
from changelog_state.changelog.topic import Topic
from changelog_state.changelog.writer import ChangelogWriter
from changelog_state.codec.keys import CLAIM, MARKER
from changelog_state.config import StoreConfig
from changelog_state.errors import CorruptStoreError, StoreError
from changelog_state.faults import fault_point
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.state_store import StateStore
from restore.plan import LogBounds, Need, plan_partition
from restore.replay import ReplayProgress, replay

__all__ = ["Claimed", "claim_partition", "open_caught_up", "renew_claim", "written_by_others"]

logger = logging.getLogger(__name__)


@dataclass
class Claimed:
    writer: ChangelogWriter
    state: StateStore
    claim: int
    epoch: int


def claim_partition(
    config: StoreConfig,
    topic: Topic,
    partition: int,
    directory: PartitionDirectory,
    opened: StateStore | None,
    claim: Claim,
    on_progress: Callable[[ReplayProgress], None],
) -> Claimed:
    """
    1. Verify what earlier claims say this store is.
    2. Take the transactional id: earlier owners are fenced, their open transactions aborted.
    3. Commit a claim record. Only now is the end of the log known: nobody else can write behind it.
    4. Replay up to the claim record.
    """
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        earlier = reader.find_last(lambda message: message.key() == CLAIM)
    if earlier is not None:
        recorded = StoreIdentity.from_fields(vars(Claim.decode(earlier.value())))
        verify_identity(config, recorded, StoreIdentity.from_fields(vars(claim)))
    fault_point("claim.before_fencing")
    writer = ChangelogWriter(
        config,
        config.changelog_topic,
        partition,
        config.transactional_id(partition),
        topic.largest_record_bytes,
    )
    keys, values = map(list, zip(*schema_records(), strict=True))
    claim_offset = writer.write([(keys, values)], lambda: (CLAIM, claim.encode()), purpose="claim")
    fault_point("claim.before_replay")
    state = open_caught_up(config, topic, partition, directory, opened, claim_offset + 1, on_progress)
    return Claimed(writer, state, claim_offset, claim.epoch)


def renew_claim(claimed: Claimed, claim: Claim) -> Claimed:
    """For a new driver's epoch, by the agent that holds the partition already.

    Its writer was not fenced (or this fails), so nobody else has written: there is nothing to replay.
    """
    offset = claimed.writer.write((), lambda: (CLAIM, claim.encode()), purpose="claim")
    claimed.state.update_meta(position=offset + 1)
    return Claimed(claimed.writer, claimed.state, offset, claim.epoch)


def open_caught_up(
    config: StoreConfig,
    topic: Topic,
    partition: int,
    directory: PartitionDirectory,
    opened: StateStore | None,
    end: int | None,
    on_progress: Callable[[ReplayProgress], None],
) -> StateStore:
    """The local store, opened and replayed up to ``end`` (None: whatever is decided now)."""
    now_ms = int(time.time() * 1000)
    try:
        state = opened or directory.open()
    except CorruptStoreError as error:
        moved = directory.move_aside("corrupt")
        logger.error("%s partition %d: %s; moved to %s, rebuilding", config.name, partition, error, moved)
        state = directory.open()
    try:
        with ChangelogReader(config, config.changelog_topic, partition) as reader:
            low, high = reader.bounds()
            log = LogBounds(topic.topic_id, low, high if end is None else end, topic.delete_retention_ms)
            plan = plan_partition(state.meta, log, now_ms)
            foreign = not plan.need.from_scratch and not _marker_stands(reader, state, log.high)
        if state.meta is not None and (plan.need.from_scratch or foreign):
            reason = "its marker is not in this log" if foreign else str(plan.need)
            logger.warning("%s partition %d: local store not used: %s", config.name, partition, reason)
            state.store.close()
            directory.wipe()
            state = directory.open()
            plan = plan_partition(None, log, now_ms)
        done = replay(
            config,
            partition,
            state,
            topic_id=topic.topic_id,
            start=plan.start,
            end=plan.end,
            caught_up_ms=now_ms,
            on_progress=on_progress,
        )
    except BaseException:
        with contextlib.suppress(StoreError):
            state.store.close()
        raise
    if plan.need is not Need.NOTHING:
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
    return state


def written_by_others(config: StoreConfig, partition: int, position: int) -> bool:
    """Whether anything was committed behind an owner's position: then it is the owner no longer."""
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        _, high = reader.bounds()
        return position < high and reader.record_at(position, high) is not None


def _marker_stands(reader: ChangelogReader, state: StateStore, high: int) -> bool:
    """The stored marker is the record at its offset. Compaction may have removed it, a rival never changes it."""
    offset = state.meta.marker_offset if state.meta else None
    if offset is None:
        return True
    low, _ = reader.bounds()
    message = reader.record_at(max(offset, low), high)
    if message is None or message.offset() != offset:
        return True
    return bool(message.key() == MARKER and message.value() == state.marker)
