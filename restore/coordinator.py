"""The driver's side: who owns what, nothing runs before everything is ready, and the commit of a batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from changelog_state.changelog.control import ControlLog
from changelog_state.changelog.record import StoreIdentity
from changelog_state.config import DEFAULT_RESTORE_MEMORY_MB, StoreConfig
from changelog_state.errors import (
    AgentUnavailableError,
    ChangelogStateError,
    RestoreTimeoutError,
    UnavailableError,
)
from changelog_state.faults import fault_point
from changelog_state.requests import RequestHeader
from restore.assignment import AgentView, Held, assign
from restore.claim_failures import ClaimFailures, worth_retrying
from restore.listener import RestoreListener
from restore.waiting import RestoreWait, is_ready, not_ready_text

__all__ = ["Agent", "BatchLostError", "Coordinator", "Owner", "Ticket"]

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_PAUSE_SECONDS = 0.1


class Agent(Protocol):
    """What the coordinator needs of an agent."""

    address: str

    def status(self, config: StoreConfig) -> list[dict[str, Any]]: ...

    def claim(
        self,
        config: StoreConfig,
        identity: StoreIdentity,
        epoch: int,
        partitions: Iterable[int],
        wait_seconds: float,
        restore_memory_mb: int,
    ) -> list[dict[str, Any]]: ...

    def open_batch(
        self, config: StoreConfig, query: str, batch: int, epoch: int, token: str, partitions: Iterable[int]
    ) -> list[dict[str, Any]]: ...

    def commit(self, header: RequestHeader, stage_id: str | None, mutations: bytes) -> dict[str, Any]: ...

    def close_batch(self, config: StoreConfig, token: str) -> None: ...

    def clear(self, config: StoreConfig, epoch: int, partitions: Iterable[int]) -> int: ...


class BatchLostError(ChangelogStateError):
    """An owner was lost with work that was staged there; the batch has to run again."""


@dataclass(frozen=True)
class Owner:
    partition: int
    address: str
    claim: int


@dataclass(frozen=True)
class Ticket:
    """What a successful task attempt sends along with its rows."""

    partition: int
    spark_partition: int
    attempt: int
    stage_id: str | None
    digest: str
    records: int


class _Absence:
    """How long agents have been missing. A replacement may be on its way; none at all is a mistake to hear of."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self.over()

    def over(self) -> None:
        self._since: float | None = None
        self._pause = _PAUSE_SECONDS

    def wait(self) -> bool:
        """A little longer each time; False when it has been long enough."""
        now = time.monotonic()
        self._since = self._since if self._since is not None else now
        if now - self._since > self._patience_seconds:
            return False
        time.sleep(self._pause)
        self._pause = min(1.0, self._pause * 1.5)
        return True


class Coordinator:
    """One driver's reign over a store, from its epoch on."""

    def __init__(
        self,
        config: StoreConfig,
        identity: StoreIdentity,
        agents: Callable[[], Sequence[Agent]],
        restore_timeout_seconds: float,
        *,
        restore_memory_mb: int = DEFAULT_RESTORE_MEMORY_MB,
        agent_patience_seconds: float = 30.0,
        listener: RestoreListener | None = None,
        show_progress: bool = False,
    ) -> None:
        self._config = config
        self.identity = identity
        self._agents = agents
        self._restore_timeout_seconds = restore_timeout_seconds
        self._restore_memory_mb = restore_memory_mb
        self._agent_patience_seconds = agent_patience_seconds
        self._listener = listener or RestoreListener()
        self._show_progress = show_progress
        self.control = ControlLog(config, identity)
        self._known: dict[str, Agent] = {}
        self._owners: dict[int, str] = {}
        self._pool = ThreadPoolExecutor(min(32, config.partitions), thread_name_prefix="coordinator")

    @property
    def epoch(self) -> int:
        return self.control.epoch

    # -- the gate ----------------------------------------------------------------------------------------

    def open_gate(
        self, query: str, batch: int, token: str, timeout_seconds: float | None = None
    ) -> tuple[dict[int, Owner], list[dict[str, Any]]]:
        """Return when every partition is ACTIVE for this epoch and knows the batch's token.

        In the steady state that is one request per agent. Otherwise: plan, have the missing ones claimed, ask
        again; up to the deadline, or until a failure that waiting does not mend.
        """
        limit = self._restore_timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + limit
        failures = ClaimFailures()
        unavailable: AgentUnavailableError | None = None
        absence = _Absence(self._agent_patience_seconds)
        with RestoreWait(self._config.name, self.epoch, self._listener, show=self._show_progress) as wait:
            while True:
                try:
                    if not self._owners:
                        self._plan(wait)
                    statuses = self._announce(query, batch, token, wait)
                    absence.over()
                    missing = [p for p, status in statuses.items() if not is_ready(status, self.epoch)]
                    if missing or wait.begun:
                        wait.saw(statuses.values(), self._owners)
                    if not missing:
                        owners = {p: Owner(p, self._owners[p], status["claim"]) for p, status in statuses.items()}
                        return owners, list(statuses.values())
                    self._claim(missing, failures, wait, deadline)
                except AgentUnavailableError as error:
                    unavailable = error
                    self._forget_agents()
                    if not absence.wait():
                        raise
                    logger.warning("planning again: %s", error)
                if time.monotonic() > deadline:
                    raise RestoreTimeoutError(self._not_ready(limit, wait, unavailable)) from unavailable

    def _plan(self, wait: RestoreWait) -> None:
        self._known = {agent.address: agent for agent in self._agents()}
        views = []
        for address in self._known:
            with self._agent(address, wait) as agent:
                statuses = agent.status(self._config)
            held = {
                status["partition"]: Held(status["phase"], status["claim"], status["position"]) for status in statuses
            }
            views.append(AgentView(address, held))
        self._owners = assign(range(self._config.partitions), views).owners

    def _announce(self, query: str, batch: int, token: str, wait: RestoreWait) -> dict[int, dict[str, Any]]:
        statuses: dict[int, dict[str, Any]] = {}
        for address, partitions in self._by_agent(range(self._config.partitions)).items():
            with self._agent(address, wait) as agent:
                answers = agent.open_batch(self._config, query, batch, self.epoch, token, partitions)
            mine = set(partitions)
            statuses |= {status["partition"]: status for status in answers if status["partition"] in mine}
        return dict(sorted(statuses.items()))

    def _claim(self, missing: Sequence[int], failures: ClaimFailures, wait: RestoreWait, deadline: float) -> None:
        """Have them claimed, and look after a moment; an agent that is asked again only waits."""
        by_agent = self._by_agent(missing)
        moment = max(0.0, min(_POLL_SECONDS, deadline - time.monotonic())) / len(by_agent)
        for address, partitions in by_agent.items():
            with self._agent(address, wait) as agent:
                answers = agent.claim(
                    self._config, self.identity, self.epoch, partitions, moment, self._restore_memory_mb
                )
            mine = [status for status in answers if status["partition"] in partitions]
            wait.saw(mine, self._owners)
            failures.note(mine)

    @contextmanager
    def _agent(self, address: str, wait: RestoreWait) -> Iterator[Agent]:
        try:
            yield self._known[address]
        except AgentUnavailableError as error:
            wait.lost(address, error)
            raise

    def _not_ready(self, limit: float, wait: RestoreWait, unavailable: Exception | None) -> str:
        latest = wait.latest
        every = range(self._config.partitions)
        missing = [p for p in every if p not in latest or not is_ready(latest[p], self.epoch)]
        return not_ready_text(self._config.name, limit, missing or every, latest, wait.last_errors, unavailable)

    # -- the commit --------------------------------------------------------------------------------------

    def commit(
        self,
        owners: Mapping[int, Owner],
        headers: Mapping[int, RequestHeader],
        tickets: Iterable[Ticket],
        replayed: frozenset[int],
    ) -> dict[int, dict[str, Any]]:
        """COMMIT to all owners in parallel; returns their answers when all have been given.

        An owner that is gone took its staged work along, so the batch runs again. Those that have committed
        answer that run as a replay.
        """
        wanted = [ticket for ticket in tickets if ticket.records or ticket.partition in replayed]

        def one(ticket: Ticket) -> dict[str, Any]:
            fault_point("driver.commit_one")
            agent = self._known[owners[ticket.partition].address]
            return agent.commit(headers[ticket.partition], ticket.stage_id, bytes.fromhex(ticket.digest))

        futures = {ticket.partition: self._pool.submit(one, ticket) for ticket in wanted}
        answers: dict[int, dict[str, Any]] = {}
        errors_found: list[ChangelogStateError] = []
        for partition, future in futures.items():
            try:
                answers[partition] = future.result()
            except ChangelogStateError as error:
                errors_found.append(error)
        if errors_found:
            self._owners = {}
            for found in errors_found:
                if not worth_retrying(found):
                    raise found
            raise BatchLostError(str(errors_found[0])) from errors_found[0]
        return answers

    def close_batch(self, token: str) -> None:
        for agent in self._known.values():
            try:
                agent.close_batch(self._config, token)
            except UnavailableError as error:
                logger.info("batch was not closed at %s: %s", agent.address, error)

    def clear(self) -> int:
        """Empty the store. Refused while another driver's batch is under way."""
        owners, statuses = self.open_gate("clear", -1, "clear")
        del owners, statuses
        cleared = 0
        for address, partitions in self._by_agent(range(self._config.partitions)).items():
            cleared += self._known[address].clear(self._config, self.epoch, partitions)
        self.control.forget_batch()
        return cleared

    def close(self) -> None:
        self._pool.shutdown(wait=True)

    def forget_agents(self) -> None:
        """Plan afresh at the next gate: something about the agents was not as expected."""
        self._forget_agents()

    def _forget_agents(self) -> None:
        self._known, self._owners = {}, {}

    def _by_agent(self, partitions: Iterable[int]) -> dict[str, list[int]]:
        grouped: dict[str, list[int]] = {}
        for partition in partitions:
            grouped.setdefault(self._owners[partition], []).append(partition)
        return grouped
