"""The driver's side: who owns what, nothing runs before everything is ready, and the commit of a batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from changelog_state.changelog.control import ControlLog
from changelog_state.changelog.record import StoreIdentity
from changelog_state.config import DEFAULT_RESTORE_MEMORY_MB, StoreConfig, TableConfig
from changelog_state.errors import (
    AgentUnavailableError,
    ChangelogStateError,
    RestoreTimeoutError,
)
from changelog_state.faults import fault_point
from changelog_state.requests import RequestHeader
from changelog_state.schemas.declarations import Declared
from restore.agent_watch import AgentWatch
from restore.assignment import assign
from restore.claim_failures import ClaimFailures, has_failed, worth_retrying
from restore.cluster_agent import Agent
from restore.listener import RestoreListener
from restore.replica_lag import LagLimits
from restore.steward import Steward, views_of
from restore.table_gate import TableGate
from restore.waiting import RestoreWait, is_ready, not_ready_text

__all__ = ["Agent", "BatchLostError", "Coordinator", "Owner", "Ticket"]

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_PAUSE_SECONDS = 0.1


class BatchLostError(ChangelogStateError):
    """An owner was lost with work that was staged there; the batch has to run again."""


@dataclass(frozen=True)
class Owner:
    partition: int
    address: str
    """Where it can be reached from anywhere."""
    claim: int
    socket: str | None = None
    """Where it can be reached on its own machine."""
    agent: str = ""
    """How this driver reaches it."""


@dataclass(frozen=True)
class Ticket:
    """What a successful task attempt sends along with its rows."""

    partition: int
    spark_partition: int
    attempt: int
    stage_id: str | None
    digest: str
    records: int
    counts: Mapping[str, Any] = field(default_factory=dict)
    """What else the task has to tell."""
    outputs: int = 0
    """Records for the output topic."""


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
    """One driver's reign over a store, from its epoch on.

    ``agents``: those that can be had now, started if need be; ``discover``: those that are registered, looked for
    while the reign lasts.
    """

    def __init__(
        self,
        config: StoreConfig,
        identity: StoreIdentity,
        agents: Callable[[], Sequence[Agent]],
        restore_timeout_seconds: float,
        *,
        standby_replicas: int = 0,
        lag_limits: LagLimits | None = None,
        discover: Callable[[], Sequence[Agent]] | None = None,
        restore_memory_mb: int = DEFAULT_RESTORE_MEMORY_MB,
        agent_patience_seconds: float = 30.0,
        listener: RestoreListener | None = None,
        show_progress: bool = False,
        tables: Sequence[TableConfig] = (),
        declared: Sequence[Declared] = (),
    ) -> None:
        self._config = config
        self.identity = identity
        self._agents = agents
        self._standby_replicas = standby_replicas
        self._restore_timeout_seconds = restore_timeout_seconds
        self._restore_memory_mb = restore_memory_mb
        self._agent_patience_seconds = agent_patience_seconds
        self._listener = listener or RestoreListener()
        self._show_progress = show_progress
        self.control = ControlLog(config, identity, declared)
        self._owners: dict[int, str] = {}
        self._claims: dict[int, int] = {}
        """The highest claim seen of each partition: whoever holds a lower one was replaced."""
        self._failing: dict[str, frozenset[int]] = {}
        self._tables = TableGate(tables, self.control.driver)
        self._table_answers: dict[str, list[dict[str, Any]]] = {}
        """What the owners have said of the tables when they were last told of a batch."""
        self._watch = AgentWatch(lambda agent: agent.pulse(config, **self._tables.request))
        self._steward = Steward(
            config,
            self.epoch,
            self._watch,
            standby_replicas=standby_replicas,
            restore_memory_mb=restore_memory_mb,
            limits=lag_limits or LagLimits(),
            owners=lambda: dict(self._owners),
            claims=self._claims,
            discover=discover,
        )

    @property
    def epoch(self) -> int:
        return self.control.epoch

    # -- the gate ----------------------------------------------------------------------------------------

    def open_gate(
        self, query: str, batch: int, token: str, timeout_seconds: float | None = None
    ) -> tuple[dict[int, Owner], list[dict[str, Any]]]:
        """Return when every partition is ACTIVE for this epoch and knows the batch's token.

        Also every owner has all of the global tables, up to where they ended when it was first asked for them.
        In the steady state that is one request per agent. Otherwise: plan, have the missing ones claimed, ask
        again; up to the deadline, or until a failure that waiting does not mend.
        """
        limit = self._restore_timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + limit
        failures = ClaimFailures()
        unavailable: AgentUnavailableError | None = None
        tables: list[str] = []
        absence = _Absence(self._agent_patience_seconds)
        self._take_planned_moves()
        with RestoreWait(self._config.name, self.epoch, self._listener, show=self._show_progress) as wait:
            while True:
                try:
                    if not self._owners:
                        self._plan()
                    statuses = self._announce(query, batch, token, wait)
                    absence.over()
                    for pulse in self._watch.pulses().values():
                        self._note_claims(pulse.partitions)
                    missing = [p for p, status in statuses.items() if not self._is_ready(status)]
                    tables = self._tables.waiting_for(self._table_answers)
                    if missing or wait.begun:
                        wait.saw(statuses.values(), self._owners)
                    if not missing and not tables:
                        self._failing = {}
                        self._steward.start()
                        return self._owners_of(statuses), list(statuses.values())
                    if missing:
                        self._claim(missing, failures, wait, deadline)
                    else:
                        time.sleep(_PAUSE_SECONDS)
                except AgentUnavailableError as error:
                    unavailable = error
                    self.forget_agents()
                    if not absence.wait():
                        raise
                    logger.warning("planning again: %s", error)
                if time.monotonic() > deadline:
                    raise RestoreTimeoutError(self._not_ready(limit, wait, unavailable, tables)) from unavailable

    def _is_ready(self, status: Mapping[str, Any]) -> bool:
        """An owner that was replaced and came back may not know it: its claim is not the latest."""
        return is_ready(status, self.epoch) and status["claim"] >= self._claims.get(status["partition"], -1)

    def _owners_of(self, statuses: Mapping[int, Mapping[str, Any]]) -> dict[int, Owner]:
        pulses = self._watch.pulses()
        owners = {}
        for partition, status in statuses.items():
            agent = self._owners[partition]
            if agent not in pulses:
                raise AgentUnavailableError(f"agent at {agent} was lost when it was ready")
            described = pulses[agent].agent
            owners[partition] = Owner(
                partition, described["address"], status["claim"], described.get("socket"), agent
            )
        return owners

    def _plan(self) -> None:
        pulses = self._watch.look(self._agents())
        for pulse in pulses.values():
            self._note_claims(pulse.partitions)
        views = views_of(pulses, failing=self._failing)
        self._owners = assign(range(self._config.partitions), views, self._standby_replicas).owners

    def _take_planned_moves(self) -> None:
        """Who is warm by now becomes the owner; the previous one is fenced by that, and the steward tells it."""
        pulses = self._watch.pulses()
        for partition, address in self._steward.ready_moves().items():
            if address in pulses and self._tables.is_ready(pulses[address].tables):
                logger.info(
                    "%s partition %d moves from %s to %s",
                    self._config.name,
                    partition,
                    self._owners[partition],
                    address,
                )
                self._owners[partition] = address

    def _announce(self, query: str, batch: int, token: str, wait: RestoreWait) -> dict[int, dict[str, Any]]:
        said: dict[str, list[dict[str, Any]]] = {}

        def ask(agent: Agent, partitions: list[int]) -> list[dict[str, Any]]:
            answer = agent.open_batch(
                self._config, query, batch, self.epoch, token, partitions, **self._tables.request
            )
            said[agent.address] = answer["tables"]
            return answer["partitions"]  # type: ignore[no-any-return]

        statuses = self._ask_owners(range(self._config.partitions), ask, wait)
        self._table_answers = said
        return statuses

    def _claim(self, missing: Sequence[int], failures: ClaimFailures, wait: RestoreWait, deadline: float) -> None:
        """Have them claimed, and look after a moment; an agent that is asked again only waits.

        Who fails at a partition gets it again only if nobody else can have it.
        """
        moment = max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))
        above = {partition: self._claims[partition] for partition in missing if partition in self._claims}

        def ask(agent: Agent, partitions: list[int]) -> list[dict[str, Any]]:
            return agent.claim(
                self._config, self.identity, self.epoch, partitions, moment, self._restore_memory_mb, above
            )

        answers = self._ask_owners(missing, ask, wait)
        wait.saw(answers.values(), self._owners)
        failures.note(answers.values())
        failed = [p for p, status in answers.items() if has_failed(status)]
        for partition in failed:
            address = self._owners[partition]
            self._failing[address] = self._failing.get(address, frozenset()) | {partition}
        if failed and len(self._watch.pulses()) > 1:
            self._owners = {}  # planned again, with someone else for these

    def _ask_owners(
        self,
        partitions: Iterable[int],
        ask: Callable[[Agent, list[int]], list[dict[str, Any]]],
        wait: RestoreWait,
    ) -> dict[int, dict[str, Any]]:
        """Their statuses, by partition: one request per agent, all at the same time."""
        by_agent = self._by_agent(partitions)
        asked = {
            address: self._watch.begin(address, lambda agent, mine=mine: ask(agent, mine))  # type: ignore[misc]
            for address, mine in by_agent.items()
        }
        statuses: dict[int, dict[str, Any]] = {}
        lost: AgentUnavailableError | None = None
        for address, answer in asked.items():
            try:
                found = self._watch.result(address, answer)
            except AgentUnavailableError as error:
                wait.lost(address, error)
                lost = error
                continue
            mine = set(by_agent[address])
            statuses |= {status["partition"]: status for status in found if status["partition"] in mine}
        self._note_claims(statuses.values())
        if lost is not None:
            raise lost
        return dict(sorted(statuses.items()))

    def _note_claims(self, statuses: Iterable[Mapping[str, Any]]) -> None:
        for status in statuses:
            partition, claim = status["partition"], status["claim"]
            if claim is not None and claim > self._claims.get(partition, -1):
                self._claims[partition] = claim

    def _not_ready(
        self, limit: float, wait: RestoreWait, unavailable: Exception | None, tables: Sequence[str]
    ) -> str:
        latest = wait.latest
        every = range(self._config.partitions)
        missing = [p for p in every if p not in latest or not self._is_ready(latest[p])]
        if tables and not latest:
            missing = []  # all were ready at the first look
        elif not missing and not tables:
            missing = list(every)
        return not_ready_text(self._config.name, limit, missing, latest, wait.last_errors, unavailable, tables)

    def table_agents(self) -> list[tuple[str, str | None]]:
        """Address and socket of those that have every global table."""
        pulses = self._watch.pulses()
        return [
            (pulse.agent["address"], pulse.agent.get("socket"))
            for address, pulse in pulses.items()
            if self._tables.is_ready(self._table_answers.get(address, pulse.tables))
        ]

    # -- while the job runs ------------------------------------------------------------------------------

    @contextmanager
    def watching(self, owners: Mapping[int, Owner], on_loss: Callable[[ChangelogStateError], None]) -> Iterator[None]:
        """Call ``on_loss``, from another thread, again and again while one of these owners is lost."""
        addresses = {owner.agent for owner in owners.values()}
        key = object()
        self._watch.on_loss(key, lambda address, error: on_loss(error) if address in addresses else None)
        try:
            yield
        finally:
            self._watch.on_loss(key, None)

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
        wanted = [ticket for ticket in tickets if ticket.records or ticket.outputs or ticket.partition in replayed]

        def one(agent: Agent, ticket: Ticket) -> dict[str, Any]:
            fault_point("driver.commit_one")
            return agent.commit(headers[ticket.partition], ticket.stage_id, bytes.fromhex(ticket.digest))

        answers: dict[int, dict[str, Any]] = {}
        errors_found: list[ChangelogStateError] = []
        asked = []
        for ticket in wanted:
            address = owners[ticket.partition].agent
            try:
                future = self._watch.begin(address, lambda agent, ticket=ticket: one(agent, ticket))  # type: ignore[misc]
            except AgentUnavailableError as error:
                errors_found.append(error)
            else:
                asked.append((ticket.partition, address, future))
        for partition, address, future in asked:
            try:
                answers[partition] = self._watch.result(address, future)
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
        """What was staged for it can go. Nothing depends on that: the next batch drops it too."""

        def close(agent: Agent) -> None:
            agent.close_batch(self._config, token)

        asked = []
        for agent in self._watch.agents():
            try:
                asked.append((agent.address, self._watch.begin(agent.address, close)))
            except AgentUnavailableError as error:
                logger.info("batch was not closed at %s: %s", agent.address, error)
        for address, answer in asked:
            try:
                self._watch.result(address, answer)
            except ChangelogStateError as error:
                logger.info("batch was not closed at %s: %s", address, error)

    def clear(self) -> int:
        """Empty the store. Refused while another driver's batch is under way."""
        owners, statuses = self.open_gate("clear", -1, "clear")
        del owners, statuses
        cleared = 0
        for address, partitions in self._by_agent(range(self._config.partitions)).items():
            cleared += self._watch.call(
                address,
                lambda agent, mine=partitions: agent.clear(self._config, self.epoch, mine),  # type: ignore[misc]
            )
        self.control.forget_batch()
        return cleared

    def close(self) -> None:
        self._steward.close()
        self._watch.close()
        self.control.close()

    def forget_agents(self) -> None:
        """Plan afresh at the next gate: something about the agents was not as expected."""
        self._owners = {}

    def _by_agent(self, partitions: Iterable[int]) -> dict[str, list[int]]:
        grouped: dict[str, list[int]] = {}
        for partition in partitions:
            grouped.setdefault(self._owners[partition], []).append(partition)
        return grouped
