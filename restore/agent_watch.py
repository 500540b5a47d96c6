"""Which agents are there: every one is asked twice a second, and whoever waits for one that is lost is told."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from changelog_state.errors import AgentUnavailableError, ChangelogStateError
from restore.cluster_agent import Agent

__all__ = ["AgentWatch", "Pulse"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
_INTERVAL_SECONDS = 0.5
_SLICE_SECONDS = 0.05
_LATE_SECONDS = 0.25
_MOST_DOUBTS = 3


@dataclass(frozen=True)
class Pulse:
    """What an agent has answered last."""

    agent: Mapping[str, Any]
    partitions: list[dict[str, Any]]
    heard: float
    tables: Sequence[Mapping[str, Any]] = ()


class AgentWatch:
    """The driver's one failure detector. A call to an agent goes through it and ends when the agent is lost.

    NOTE: calls run in threads that nobody waits for at the end: an agent that is cut off may keep one busy for
    minutes, and neither a batch nor the end of the process should wait for that.
    """

    def __init__(self, pulse: Callable[[Agent], dict[str, Any]], interval_seconds: float = _INTERVAL_SECONDS) -> None:
        self._pulse = pulse
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._agents: dict[str, Agent] = {}
        self._pulses: dict[str, Pulse] = {}
        self._lost: dict[str, ChangelogStateError] = {}
        self._listeners: dict[object, Callable[[str, ChangelogStateError], None]] = {}
        self._closed = threading.Event()

    # -- who is there ------------------------------------------------------------------------------------

    def look(self, agents: Iterable[Agent]) -> dict[str, Pulse]:
        """Ask these agents now, all at once; from here on they are watched. Those that answer are returned.

        One that is known to be lost is not waited for: it is asked again by its watcher, and is back when it answers.
        """
        found = {agent.address: agent for agent in agents}
        self._watch(found)
        asked = {
            address: self._begin(lambda agent=agent: self._pulse(agent))  # type: ignore[misc]
            for address, agent in found.items()
            if address not in self._lost
        }
        answers = {}
        for address, answer in asked.items():
            try:
                answers[address] = self._heard(found[address], answer.result())
            except AgentUnavailableError as error:
                self._note_lost(found[address], error)
        if not answers:
            reasons = [str(self._lost[address]) for address in found if address in self._lost]
            raise AgentUnavailableError("; ".join(reasons) or "there is no agent; start one on each worker node")
        return answers

    def is_watched(self, address: str, agent: Agent) -> bool:
        return self._agents.get(address) is agent

    def pulses(self) -> dict[str, Pulse]:
        """The last answers of those that are not lost."""
        with self._lock:
            return {address: pulse for address, pulse in self._pulses.items() if address not in self._lost}

    def watched(self) -> set[str]:
        with self._lock:
            return set(self._agents)

    def agents(self) -> list[Agent]:
        with self._lock:
            return [agent for address, agent in self._agents.items() if address not in self._lost]

    def lost_among(self, addresses: Iterable[str]) -> ChangelogStateError | None:
        return next((self._lost[address] for address in addresses if address in self._lost), None)

    def on_loss(self, key: object, tell: Callable[[str, ChangelogStateError], None] | None) -> None:
        """Have ``tell`` called, in a watcher's thread, whenever an agent has not answered; None ends that."""
        with self._lock:
            if tell is None:
                self._listeners.pop(key, None)
            else:
                self._listeners[key] = tell

    def close(self) -> None:
        self._closed.set()

    # -- asking one --------------------------------------------------------------------------------------

    def call(self, address: str, work: Callable[[Agent], T]) -> T:
        """What ``work`` returns. Raises ``AgentUnavailableError`` as soon as the agent is known to be lost."""
        return self.result(address, self.begin(address, work))

    def begin(self, address: str, work: Callable[[Agent], T]) -> Future[T]:
        agent = self._agents.get(address)
        if agent is None:
            raise AgentUnavailableError(f"agent at {address} is not known any more")
        return self._begin(lambda: work(agent))

    def result(self, address: str, future: Future[T]) -> T:
        while not wait([future], _SLICE_SECONDS).done:
            lost = self._lost.get(address)
            if lost is not None:
                raise AgentUnavailableError(str(lost)) from lost
        return future.result()

    @staticmethod
    def _begin(work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # whoever waits for it gets it
                future.set_exception(error)

        threading.Thread(target=run, name="agent-call", daemon=True).start()
        return future

    # -- the watchers ------------------------------------------------------------------------------------

    def _watch(self, agents: Mapping[str, Agent]) -> None:
        with self._lock:
            for address, agent in agents.items():
                if self._agents.get(address) is not agent:
                    self._agents[address] = agent
                    self._lost.pop(address, None)  # that was another one
                    self._pulses.pop(address, None)
                    threading.Thread(
                        target=self._keep_asking, args=(address, agent), name="agent-watch", daemon=True
                    ).start()

    def forget(self, address: str) -> None:
        """It has said that it is gone."""
        with self._lock:
            for known in (self._agents, self._pulses, self._lost):
                known.pop(address, None)

    def _keep_asking(self, address: str, agent: Agent) -> None:
        doubts = 0
        while True:
            began = time.monotonic()
            if self._closed.wait(self._interval_seconds) or not self.is_watched(address, agent):
                return
            late = time.monotonic() - began - self._interval_seconds > _LATE_SECONDS
            try:
                answer = self._pulse(agent)
            except AgentUnavailableError as error:
                # A driver that is late itself, on an overloaded machine, is in no position to judge others.
                doubts += late
                if not late or doubts > _MOST_DOUBTS:
                    self._note_lost(agent, error)
            except ChangelogStateError as error:
                logger.info("agent at %s answered with an error: %s", address, error)
            else:
                doubts = 0
                self._heard(agent, answer)

    def _heard(self, agent: Agent, answer: dict[str, Any]) -> Pulse:
        """What is said by one that was forgotten meanwhile does not count."""
        pulse = Pulse(answer["agent"], answer["partitions"], time.monotonic(), answer.get("tables", ()))
        address, back = agent.address, None
        with self._lock:
            if self._agents.get(address) is agent:
                self._pulses[address] = pulse
                back = self._lost.pop(address, None)
        if back is not None:
            logger.warning("agent %s at %s answers again", pulse.agent["id"], address)
        return pulse

    def _note_lost(self, agent: Agent, error: ChangelogStateError) -> None:
        address = agent.address
        with self._lock:
            if self._closed.is_set() or self._agents.get(address) is not agent:
                return
            known = address in self._lost
            self._lost[address] = error
            listeners = list(self._listeners.values())
        if not known:
            logger.warning("agent at %s is lost: %s", address, error)
        for tell in listeners:
            tell(address, error)
