"""What is here, what the log has, and what follows from that. Looks only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import Marker
from changelog_state.changelog.topic import Topic
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogMismatchError, CorruptStoreError
from changelog_state.store.directory import size_of
from changelog_state.store.meta import StoreMeta
from changelog_state.store.offline import offline_view
from restore.estimate import SAMPLE_RECORDS, Estimate, extrapolate, sample_log
from restore.marker_check import marker_stands
from restore.plan import LogBounds, Need, PartitionPlan, plan_partition

__all__ = ["LocalStore", "PartitionSurvey", "look_at", "survey"]

_AT_ONCE = 8


@dataclass(frozen=True)
class LocalStore:
    """What is on disk of one partition."""

    meta: StoreMeta | None = None
    marker_bytes: bytes | None = None
    damage: str | None = None
    bytes: int = 0

    @property
    def marker(self) -> Marker | None:
        return None if self.marker_bytes is None else Marker.decode(self.marker_bytes)


@dataclass(frozen=True)
class PartitionSurvey:
    partition: int
    local: LocalStore
    log: LogBounds
    plan: PartitionPlan
    estimate: Estimate


def look_at(path: Path) -> LocalStore:
    size, _ = size_of(path / "db")
    try:
        with offline_view(path) as state:
            if state is None:
                return LocalStore()
            return LocalStore(state.meta, state.marker, bytes=size)
    except CorruptStoreError as error:
        return LocalStore(damage=str(error), bytes=size)
    except ChangelogMismatchError as error:
        raise ChangelogMismatchError(f"{path}: {error}") from error


def survey(
    config: StoreConfig,
    topic: Topic,
    partitions: Iterable[int],
    path_of: Callable[[int], Path],
    *,
    sampling: bool = False,
) -> list[PartitionSurvey]:
    """``sampling``: estimate what a long log holds, which takes a while; else its offsets stand for its records."""
    now_ms = int(time.time() * 1000)
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="survey") as pool:
        return list(pool.map(lambda p: _survey_one(config, topic, p, path_of(p), now_ms, sampling), partitions))


def _survey_one(
    config: StoreConfig, topic: Topic, partition: int, path: Path, now_ms: int, sampling: bool
) -> PartitionSurvey:
    local = look_at(path)
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        low, high = reader.bounds()
        log = LogBounds(topic.topic_id, low, high, topic.delete_retention_ms)
        plan = plan_partition(local.meta, log, now_ms, damaged=local.damage is not None)
        if not plan.need.from_scratch and not marker_stands(reader, local.meta, local.marker_bytes, high):
            plan = plan_partition(local.meta, log, now_ms, foreign=True)
        if sampling or plan.offsets <= SAMPLE_RECORDS:
            estimate = extrapolate(sample_log(reader, plan.start, plan.end))
        else:
            estimate = Estimate(plan.offsets, 0, exact=False)
    if plan.need is Need.BEHIND and estimate.exact and not estimate.records:
        plan = replace(plan, need=Need.NOTHING)  # only transaction markers follow
    return PartitionSurvey(partition, local, log, plan, estimate)
