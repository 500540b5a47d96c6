"""Everything an agent owns: its state directory, the stores it was asked for, and their partitions."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from changelog_state.agent.batch_desk import OpenBatch
from changelog_state.agent.claim_jobs import ClaimJobs
from changelog_state.agent.drivers import Drivers
from changelog_state.agent.partition import Partition
from changelog_state.agent.staging import StagingBudget
from changelog_state.agent.tables import Tables
from changelog_state.changelog.control import read_control
from changelog_state.changelog.record import Claim, StoreIdentity
from changelog_state.changelog.topic import Topic, lookup_topic
from changelog_state.config import StoreConfig
from changelog_state.errors import (
    ChangelogMismatchError,
    ChangelogStateError,
    StaleClaimError,
    StaleEpochError,
    StoreError,
)
from changelog_state.requests import RequestHeader
from changelog_state.store.directory import StateDirectory
from changelog_state.store.rocksdb import RocksMemory
from restore.bulk_pool import BulkPool

__all__ = ["AgentSettings", "Registry"]

logger = logging.getLogger(__name__)

_CLAIMS_AT_ONCE = 8
_MAINTENANCE_SECONDS = 30.0
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class AgentSettings:
    state_dir: Path
    cache_mb: int = 256
    write_buffers_mb: int = 256
    staging_mb: int = 512


@dataclass
class _Host:
    """A store as far as this agent has to do with it."""

    config: StoreConfig
    partitions: dict[int, Partition]
    topic: Topic | None = None
    topic_lock: threading.Lock = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.topic_lock = threading.Lock()


class Registry:
    def __init__(self, settings: AgentSettings) -> None:
        self._directory = StateDirectory(
            settings.state_dir, RocksMemory(settings.cache_mb, settings.write_buffers_mb)
        )
        self._budget = StagingBudget(settings.staging_mb * _MEBIBYTE, self._directory.spill_dir)
        self._pool = BulkPool()
        self.host = socket.gethostname()
        self.incarnation = uuid.uuid4().hex
        self.draining = False
        """Whether it is to give away what it owns, and get nothing new."""
        self.agent_id = f"{self.host}-{os.getpid()}-{self.incarnation[:6]}"
        self.drivers = Drivers()
        self.tables = Tables(self._directory, self._pool)
        self._hosts: dict[tuple[str, str], _Host] = {}
        self._lock = threading.Lock()
        self._claims = ClaimJobs(_CLAIMS_AT_ONCE)
        self._stopping = threading.Event()
        self._maintenance = threading.Thread(target=self._maintain, name="maintenance", daemon=True)
        self._maintenance.start()

    @property
    def state_dir(self) -> Path:
        return self._directory.path

    # -- for drivers -------------------------------------------------------------------------------------

    def claim(
        self,
        config: StoreConfig,
        identity: StoreIdentity,
        epoch: int,
        numbers: list[int],
        wait_seconds: float,
        restore_memory_mb: int,
        above: Mapping[int, int],
    ) -> list[dict[str, Any]]:
        """Start claiming; answer when all are done or the time is up. Failures show in the status.

        Asked again while the same claims are pending, it only waits for them. ``above``: see ``Partition.claim``.
        """
        host = self._host(config)
        self._pool.allow(restore_memory_mb)
        if not all(self._claims.is_pending(host.partitions[number], epoch) for number in numbers):
            self._refuse_replaced_driver(config, epoch)
            topic = self._topic(host, refresh=True)
        else:
            topic = self._topic(host)
        for partition in host.partitions.values():
            partition.adopt_epoch(epoch)
        futures = []
        for number in numbers:
            claim = Claim(epoch, self.agent_id, self.incarnation, int(time.time() * 1000), **vars(identity))
            work = partial(self._claim_one, host.partitions[number], topic, claim, above.get(number))
            futures.append(self._claims.submit(host.partitions[number], epoch, work))
        wait(futures, timeout=wait_seconds)
        return self.statuses(config)

    @staticmethod
    def _refuse_replaced_driver(config: StoreConfig, epoch: int) -> None:
        newest = read_control(config).epoch
        if newest is not None and newest.epoch > epoch:
            raise StaleEpochError(
                f"store {config.name}: a driver with epoch {newest.epoch} has taken over from epoch {epoch}; "
                "the older driver must stop"
            )

    @staticmethod
    def _claim_one(partition: Partition, topic: Topic, claim: Claim, above: int | None) -> None:
        try:
            partition.claim(topic, claim, above)
        except Exception:
            logger.exception("claim of %s partition %d failed", partition.config.name, partition.number)

    def follow(
        self,
        config: StoreConfig,
        epoch: int,
        numbers: Iterable[int],
        known_claims: Mapping[int, int],
        restore_memory_mb: int,
    ) -> list[dict[str, Any]]:
        """What the driver wants this agent to have beside what it owns: hot replicas of these, and of no others.

        ``known_claims``: by the latest one, an owner that was replaced while it was cut off learns of it.
        """
        host = self._host(config)
        topic = self._topic(host)
        self._pool.allow(restore_memory_mb)
        wanted = set(numbers)
        for number, partition in host.partitions.items():
            partition.refuse_if_older(epoch)
            if number in known_claims:
                partition.release_if_replaced(known_claims[number])
            if number in wanted:
                partition.follow(topic)
            else:
                partition.unfollow()
        return self.statuses(config)

    def open_batch(self, config: StoreConfig, batch: OpenBatch, numbers: Iterable[int]) -> list[dict[str, Any]]:
        host = self._host(config)
        numbers = list(numbers)
        try:
            opened = self._open_all(host, batch, numbers)
        except StaleEpochError:
            # A recreated store counts its epochs from 1 again, and is not the one that this agent has known.
            if not self._was_recreated(host):
                raise
            opened = self._open_all(host, batch, numbers)
        # One that has become ready since does not know the batch yet: its time is the next request.
        return [
            status if status["partition"] in opened else {**status, "epoch": None} for status in self.statuses(config)
        ]

    @staticmethod
    def _open_all(host: _Host, batch: OpenBatch, numbers: Iterable[int]) -> set[int]:
        """Those that are ready, and know the batch now."""
        opened = set()
        for number in numbers:
            host.partitions[number].adopt_epoch(batch.epoch)
            if host.partitions[number].open_batch(batch):
                opened.add(number)
        return opened

    def close_batch(self, config: StoreConfig, token: str) -> None:
        for partition in self._host(config).partitions.values():
            partition.close_batch(token)

    def clear(self, config: StoreConfig, epoch: int, numbers: Iterable[int]) -> int:
        host = self._host(config)
        return sum(host.partitions[number].clear(epoch) for number in numbers)

    def release(self, config: StoreConfig) -> None:
        for partition in self._host(config).partitions.values():
            partition.release()

    # -- for tasks and tools -----------------------------------------------------------------------------

    def partition(self, header: RequestHeader) -> Partition:
        host = self._hosts.get((header.application, header.store))
        if host is None or header.partition not in host.partitions:
            raise StaleClaimError(
                f"store {header.application}/{header.store} partition {header.partition} is not owned here"
            )
        return host.partitions[header.partition]

    def read(self, config: StoreConfig, number: int, keys: list[bytes], stale_ok: bool) -> list[bytes | None]:
        host = self._host(config)
        topic = self._topic(host)  # first: if the store was recreated, its partitions are others then
        return host.partitions[number].read(topic, keys, stale_ok=stale_ok)

    def scan(
        self, config: StoreConfig, number: int, start: bytes, end: bytes | None, limit: int, stale_ok: bool
    ) -> list[tuple[bytes, bytes]]:
        host = self._host(config)
        topic = self._topic(host)
        return host.partitions[number].scan(topic, start, end, limit, stale_ok=stale_ok)

    def lag(self, config: StoreConfig, number: int) -> dict[str, Any]:
        """How far behind the log an answer of this partition may be."""
        return self._host(config).partitions[number].lag()

    def statuses(self, config: StoreConfig) -> list[dict[str, Any]]:
        partitions = self._host(config).partitions.values()
        return [{"claim_pending": self._claims.is_pending(each), **each.status()} for each in partitions]

    @property
    def owned(self) -> int:
        """Partitions that this agent owns, or is about to."""
        return sum(partition.is_owned for partition in self._held())

    def summary(self) -> dict[str, Any]:
        """What stands in the way of stopping this agent without anybody noticing."""
        return {
            "draining": self.draining,
            "owned": self.owned,
            "following": sum(partition.is_tailing for partition in self._held()),
            "driver_seen_seconds_ago": self.drivers.seconds_since_heard(),
        }

    def drain(self, draining: bool) -> None:
        """Have what is owned here taken over by others, which drivers do; without one it is simply let go of."""
        self.draining = draining
        self._let_go_if_alone()

    def _let_go_if_alone(self) -> None:
        if self.draining and not self.drivers.any_alive():
            for partition in self._held():
                if partition.is_owned:
                    partition.release()

    def _held(self) -> list[Partition]:
        return [partition for host in list(self._hosts.values()) for partition in host.partitions.values()]

    def close(self) -> None:
        """Flush and close everything, then let go of the directory."""
        self._stopping.set()
        self._claims.stop()
        for host in list(self._hosts.values()):
            for partition in host.partitions.values():
                try:
                    partition.release()
                except StoreError as error:
                    logger.error("%s partition %d: %s", host.config.name, partition.number, error)
        self._claims.join()
        self.tables.close()
        self._pool.close()
        self._directory.close()

    # -- inside ------------------------------------------------------------------------------------------

    def _host(self, config: StoreConfig) -> _Host:
        with self._lock:
            key = (config.application, config.store)
            host = self._hosts.get(key)
            if (
                host is not None
                and _other_kafka(host.config, config)
                and not any(partition.is_in_use for partition in host.partitions.values())
            ):
                logger.info("%s: its Kafka is reached in another way from now on", config.name)
                for partition in host.partitions.values():
                    partition.retire()
                host = None
            if host is None:
                host = self._hosts[key] = _Host(config, self._partitions(config))
            if host.config.partitions != config.partitions:
                raise ChangelogMismatchError(
                    f"store {config.name} has {host.config.partitions} partitions here, asked for with "
                    f"{config.partitions}; a store's partition count is fixed"
                )
            return host

    def _partitions(self, config: StoreConfig) -> dict[int, Partition]:
        directory = self._directory
        return {
            number: Partition(
                config,
                number,
                directory.partition(config.application, config.store, number),
                self._budget,
                self._pool,
                self.drivers.is_alive,
            )
            for number in range(config.partitions)
        }

    def _was_recreated(self, host: _Host) -> bool:
        known = host.topic
        return known is not None and self._topic(host, refresh=True).topic_id != known.topic_id

    def _topic(self, host: _Host, *, refresh: bool = False) -> Topic:
        with host.topic_lock:
            if host.topic is None or refresh:
                topic = lookup_topic(host.config)
                if topic is None:
                    raise ChangelogMismatchError(
                        f"changelog topic {host.config.changelog_topic} does not exist on "
                        f"{host.config.bootstrap_servers}; check the application's and the store's name"
                    )
                if host.topic is not None and host.topic.topic_id != topic.topic_id:
                    logger.warning("%s: the changelog was recreated; local stores are rebuilt", host.config.name)
                    for partition in host.partitions.values():
                        partition.retire()
                    host.partitions = self._partitions(host.config)
                host.topic = topic
            return host.topic

    def _maintain(self) -> None:
        while not self._stopping.wait(_MAINTENANCE_SECONDS):
            self._let_go_if_alone()
            for host in list(self._hosts.values()):
                self._notice_recreated(host)
                for partition in host.partitions.values():
                    partition.maintain(time.monotonic())

    def _notice_recreated(self, host: _Host) -> None:
        """Tails would go on in a changelog that was deleted and made again, and has grown past their position."""
        if any(partition.is_tailing for partition in host.partitions.values()):
            try:
                self._was_recreated(host)
            except ChangelogStateError as error:
                logger.info("%s: its changelog cannot be looked at: %s", host.config.name, error)


def _other_kafka(known: StoreConfig, asked: StoreConfig) -> bool:
    return (known.bootstrap_servers, dict(known.kafka)) != (asked.bootstrap_servers, dict(asked.kafka))
