"""Which agent is asked for a partition by whoever reads outside a batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from changelog_state.agent.client import AgentClient
from changelog_state.config import StoreConfig
from changelog_state.errors import AgentUnavailableError, ChangelogStateError, StaleClaimError

__all__ = ["Answering", "Routes", "ask_all", "by_preference"]

T = TypeVar("T")
_FRESH_SECONDS = 2.0
_OWNERS = ("ACTIVE", "RESTORING")


@dataclass(frozen=True)
class Answering:
    """An agent that answers, and what it has of the store."""

    client: AgentClient
    agent: Mapping[str, Any]
    partitions: Mapping[int, Mapping[str, Any]]
    tables: Sequence[Mapping[str, Any]] = ()


class Routes:
    """``agents``: those that there are. What they have is asked for again when it is old, or was wrong."""

    def __init__(self, config: StoreConfig, agents: Callable[[], Sequence[AgentClient]]) -> None:
        self._config = config
        self._agents = agents
        self._lock = threading.Lock()
        self._known: list[Answering] = []
        self._looked = 0.0

    def look(self) -> list[Answering]:
        """All agents that answer now."""
        found = ask_all(self._agents(), self._config)
        with self._lock:
            self._known, self._looked = found, time.monotonic()
        return found

    def ask(self, partition: int, ask: Callable[[AgentClient], T], *, stale_ok: bool = False) -> T:
        """What the best agent for this partition answers; if it cannot, the next one, after another look."""
        failed: dict[str, ChangelogStateError] = {}
        while True:
            known = self._look_if_old() if not failed else self.look()
            untried = [one for one in by_preference(partition, known, stale_ok) if one.client.address not in failed]
            if not untried:
                raise next(iter(failed.values()), AgentUnavailableError(f"no agent of {self._config.name} answers"))
            try:
                return ask(untried[0].client)
            except (AgentUnavailableError, StaleClaimError) as error:
                failed[untried[0].client.address] = error

    def _look_if_old(self) -> list[Answering]:
        with self._lock:
            if self._known and time.monotonic() - self._looked < _FRESH_SECONDS:
                return self._known
        return self.look()


def ask_all(clients: Sequence[AgentClient], config: StoreConfig, **tables: Any) -> list[Answering]:
    """What each agent has, as far as they answer; all are asked at once. ``tables``: what they should have."""

    def ask(client: AgentClient) -> Answering | None:
        try:
            pulse = client.pulse(config, as_driver=False, **tables)
        except AgentUnavailableError:
            return None
        partitions = {status["partition"]: status for status in pulse["partitions"]}
        return Answering(client, pulse["agent"], partitions, pulse["tables"])

    with ThreadPoolExecutor(max(1, len(clients)), thread_name_prefix="routes") as pool:
        return [answer for answer in pool.map(ask, clients) if answer is not None]


def by_preference(partition: int, known: Sequence[Answering], stale_ok: bool) -> list[Answering]:
    """The owner (by the highest claim), then replicas, the most caught-up first, then whoever has any of it.

    ``stale_ok``: whoever has it ready on this machine, then other replicas, then the owner.
    """

    def rank(one: Answering) -> tuple[Any, ...]:
        status = one.partitions.get(partition)
        if status is None:
            return 3, 0, one.agent["id"]
        position = status["position"] or status["disk_position"] or 0
        if status["phase"] in _OWNERS:
            return 0, -(status["claim"] or 0), one.agent["id"]
        return (1 if status["follower"] else 2), -position, one.agent["id"]

    def stale_rank(one: Answering) -> tuple[Any, ...]:
        status = one.partitions.get(partition)
        ready = status is not None and (status["follower"] is not None or status["phase"] == "ACTIVE")
        here = one.client.address == one.agent["socket"]
        is_owner = status is not None and status["phase"] in _OWNERS
        return not (ready and here), not ready, is_owner, rank(one)

    return sorted(known, key=stale_rank if stale_ok else rank)
