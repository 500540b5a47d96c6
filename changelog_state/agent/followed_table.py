"""A global table at an agent: all partitions of its topic, who asks for it, and what is found in it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from changelog_state.agent.key_reading import FoundValues
from changelog_state.agent.table_partition import TablePartition
from changelog_state.agent.table_reading import find_keys
from changelog_state.agent.table_schemas import TableSchemas, newest_claim
from changelog_state.changelog.topic import Topic, end_offsets, lookup_any_topic
from changelog_state.config import TableConfig
from changelog_state.errors import AgentUnavailableError, ChangelogStateError, ConfigurationError, UnavailableError
from changelog_state.store.directory import StateDirectory
from restore.bulk_pool import BulkPool

__all__ = ["FollowedTable"]

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 30.0
_PAUSE_SECONDS = 2.0
_LEAST_RETENTION_MS = 120_000


@dataclass
class _Asker:
    first: float
    last: float
    goals: dict[int, int] | None = None
    """The topic's ends soon after the first ask: what has to be here before it is ready for this asker."""


class FollowedTable:
    def __init__(self, config: TableConfig, directory: StateDirectory, pool: BulkPool, wake: threading.Event) -> None:
        self.config = config
        self._directory = directory
        self._pool = pool
        self._wake = wake
        self._topic: Topic | None = None
        self._looked = float("-inf")
        self._partitions: dict[int, TablePartition] = {}
        self._schemas = TableSchemas(config)
        self._askers: dict[str, _Asker] = {}
        self._error: tuple[float, ChangelogStateError] | None = None
        """Why the topic could not be looked at, and when."""

    # -- who wants it ------------------------------------------------------------------------------------

    def ask(self, asker: str, now: float) -> None:
        known = self._askers.get(asker)
        if known is None:
            self._askers[asker] = _Asker(now, now)
            self._wake.set()
        else:
            known.last = now

    def asked_since(self, moment: float, *, but: str | None = None) -> bool:
        """Whether anybody has; ``but``: anybody else."""
        return any(asker.last >= moment for name, asker in list(self._askers.items()) if name != but)

    def forget_askers(self, moment: float) -> None:
        """Those that have not asked since."""
        for name in [name for name, asker in self._askers.items() if asker.last < moment]:
            del self._askers[name]

    # -- for the keeper ----------------------------------------------------------------------------------

    def keep(self, now: float) -> None:
        """
        1. Look at the topic, if that was long ago or somebody new asks: it may have been made anew, or have grown.
        2. Where its end is, for who has asked since.
        3. Have every partition followed.
        """
        newcomers = [asker for asker in list(self._askers.values()) if asker.goals is None and asker.first <= now]
        failing_for_long = self._error is not None and now - self._error[0] > _PAUSE_SECONDS
        if now - self._looked > _LOOK_SECONDS or failing_for_long or any(a.first > self._looked for a in newcomers):
            self._try(self._look, now)
        if self._error is not None or self._topic is None:
            return
        for partition in list(self._partitions.values()):
            partition.keep(now)
        if newcomers:
            self._try(self._set_goals, now)

    def _try(self, work: Callable[[float], None], now: float) -> None:
        try:
            work(now)
        except UnavailableError as error:
            logger.info("%s: %s", self.config.name, error)
            if self._topic is None:  # else it goes on as it is: its tails wait for the broker, and the lag shows
                self._error = now, error
        except ChangelogStateError as error:
            self._error = now, error

    def _set_goals(self, now: float) -> None:
        assert self._topic is not None
        goals = end_offsets(self.config, self._topic)
        for asker in list(self._askers.values()):
            if asker.goals is None and asker.first <= now:
                asker.goals = goals

    def _look(self, now: float) -> None:
        self._looked = now
        topic = lookup_any_topic(self.config, self.config.changelog_topic)
        if topic is None:
            raise ConfigurationError(
                f"{self.config.name} follows topic {self.config.changelog_topic}, which does not exist on "
                f"{self.config.bootstrap_servers}; create it, or correct topic= or store="
            )
        policy = topic.settings.get("cleanup.policy") or ""
        if "compact" not in policy:
            raise ConfigurationError(
                f"{self.config.name} follows topic {topic.name}, whose cleanup.policy is {policy!r}: it forgets keys "
                "that are not written again; follow a compacted topic (cleanup.policy=compact)"
            )
        topic = self._as_followed(topic)
        known = self._topic
        if known is not None and (known.topic_id != topic.topic_id or known.partitions > topic.partitions):
            self.stop()
        if known is None or known.topic_id != topic.topic_id:
            for asker in list(self._askers.values()):
                asker.goals = None
        self._topic, self._error = topic, None
        for number in range(topic.partitions):
            if number not in self._partitions:
                directory = self._directory.table_partition(self.config.application, self.config.table, number)
                self._partitions[number] = TablePartition(
                    self.config, topic, number, directory, self._pool, self._wake.set
                )

    def _as_followed(self, topic: Topic) -> Topic:
        if not self.config.raw_keys:
            return topic
        # Somebody else's topic may keep deletions for hardly any time. A table that was never behind for longer than
        # a moment has read them nevertheless, and cannot be rebuilt over and over because it might not have.
        retention_ms = max(topic.delete_retention_ms, _LEAST_RETENTION_MS)
        return replace(
            topic,
            # The two ways to keep records differ in their keys: a store made in the one is none in the other.
            topic_id=topic.topic_id + "/plain",
            settings={**topic.settings, "delete.retention.ms": str(retention_ms)},
        )

    def stop(self) -> None:
        """Follow it no longer; what is on disk stays."""
        partitions, self._partitions = self._partitions, {}
        for partition in partitions.values():
            partition.stop_soon()
        for partition in partitions.values():
            partition.stop()

    # -- what is known of it -----------------------------------------------------------------------------

    def status(self, asker: str | None = None) -> dict[str, Any]:
        """``ready``: for this asker, has all that was in the topic when it first asked; for nobody, is followed."""
        known = self._askers.get(asker) if asker is not None else None
        topic, partitions = self._topic, dict(self._partitions)
        lags = [partition.lag() for partition in partitions.values()]
        followed = bool(lags) and all(partition.has(0) for partition in partitions.values())
        goals = known.goals if known is not None else {}
        ready = followed and goals is not None and all(partitions[p].has(end) for p, end in goals.items())
        error = self._present_error(known)
        return {
            "application": self.config.application,
            "table": self.config.table,
            "topic": self.config.changelog_topic,
            "plain": self.config.raw_keys,
            "partitions": None if topic is None else topic.partitions,
            "phase": "FAILED" if error is not None else "FOLLOWING" if followed else "RESTORING",
            "ready": ready and self._error is None,
            "lag_records": _sum(lag["lag_records"] for lag in lags) if lags else None,
            "lag_seconds": _max(lag["lag_seconds"] for lag in lags) if lags else None,
            "delete_retention_ms": None if topic is None else topic.delete_retention_ms,
            "error": None if error is None else {"class": type(error).__name__, "message": str(error)},
        }

    def _present_error(self, asker: _Asker | None) -> Exception | None:
        """An earlier failure says nothing to who has asked since."""
        if self._error is not None:
            return self._error[1] if asker is None or self._error[0] >= asker.first else None
        return next((p.last_error for p in list(self._partitions.values()) if p.last_error is not None), None)

    # -- looking things up -------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What has to be known to ask for keys: of a store, also what it was made as."""
        partitions = self._opened()
        identity = None
        if not self.config.raw_keys:
            claim = newest_claim(partitions)
            identity = None if claim is None else vars(claim)
        return {"partitions": len(partitions), "identity": identity}

    def find(self, keys: list[bytes], places: list[int], *, anywhere: bool) -> FoundValues:
        """What these keys have, each looked for in its place; ``anywhere``: else in all other partitions."""
        return find_keys(self._opened(), keys, places, raw_keys=self.config.raw_keys, anywhere=anywhere)

    def schema(self, name: str, fingerprint: bytes) -> str | None:
        """With which a store's value of this name was written; None: nobody knows."""
        partitions, topic = self._opened(), self._topic
        assert topic is not None
        return self._schemas.find(topic.topic_id, partitions, name, fingerprint)

    def _opened(self) -> dict[int, TablePartition]:
        topic, partitions = self._topic, dict(self._partitions)
        if topic is None or len(partitions) < topic.partitions or not all(p.is_open for p in partitions.values()):
            raise AgentUnavailableError(
                f"{self.config.name} is not ready at this agent"
                + (f": {self._error[1]}" if self._error else "; it is being read from its topic")
            )
        return partitions


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(known)  # type: ignore[arg-type]


def _max(numbers: Iterable[float | None]) -> float | None:
    known = list(numbers)
    return None if None in known else max(known)  # type: ignore[type-var]
