"""Taking a partition: fence, then restore, then serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from changelog_state.changelog.control import read_control, verify_identity
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import Claim, StoreIdentity, schema_records
from changelog_state.changelog.topic import Topic
from changelog_state.changelog.writer import ChangelogWriter
from changelog_state.codec.kinds import CLAIM
from changelog_state.config import StoreConfig
from changelog_state.faults import fault_point
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.state_store import StateStore
from restore.bulk_pool import BulkPool
from restore.catch_up import catch_up
from restore.replay import ReplayProgress

__all__ = ["Claimed", "claim_partition", "log_end", "renew_claim", "written_by_others"]

_NEAR_OFFSETS = 20_000


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
    pool: BulkPool,
) -> Claimed:
    """
    1. Verify what the store was made as.
    2. Take the transactional id: earlier owners are fenced, their open transactions aborted.
    3. Commit a claim record. Only now is the end of the log known: nobody else can write behind it.
    4. Replay up to the claim record.
    """
    recorded = _recorded_identity(config, partition)
    if recorded is not None:
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
    caught_up = catch_up(
        config,
        topic,
        partition,
        directory,
        opened,
        claim_offset + 1,
        on_progress,
        own_from=claim_offset - len(keys),
        pool=pool,
    )
    return Claimed(writer, caught_up.state, claim_offset, claim.epoch)


def _recorded_identity(config: StoreConfig, partition: int) -> StoreIdentity | None:
    """By the last claim, if it is near; else by the last epoch: an owner may have written much since its claim."""
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        earlier = reader.find_last(lambda message: message.key() == CLAIM, most_offsets=_NEAR_OFFSETS)
    if earlier is not None:
        return StoreIdentity.from_fields(vars(Claim.decode(earlier.value())))
    epoch = read_control(config).epoch
    return None if epoch is None else StoreIdentity.from_fields(vars(epoch))


def renew_claim(claimed: Claimed, claim: Claim) -> Claimed:
    """For a new driver's epoch, by the agent that holds the partition already.

    Its writer was not fenced (or this fails), so nobody else has written: there is nothing to replay.
    """
    offset = claimed.writer.write((), lambda: (CLAIM, claim.encode()), purpose="claim")
    assert claimed.state.meta is not None
    claimed.state.replay({CLAIM: claim.encode()}, replace(claimed.state.meta, position=offset + 1))
    return Claimed(claimed.writer, claimed.state, offset, claim.epoch)


def written_by_others(config: StoreConfig, partition: int, position: int) -> bool:
    """Whether anything was committed behind an owner's position: then it is the owner no longer."""
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        _, high = reader.bounds()
        return position < high and reader.record_at(position, high) is not None


def log_end(config: StoreConfig, partition: int) -> int:
    """The offset up to which transactions are decided now."""
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        return reader.bounds()[1]
