"""A process's way into one global table: through the nearest agent that has it, or else another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from changelog_state.agent.transport import best_address, is_socket
from changelog_state.errors import AgentUnavailableError
from changelog_state.requests import LookupRequest
from changelog_state.state.ttl import ABSENT
from changelog_state.tables.lookup import LookupSession
from changelog_state.tables.settings import TableSettings

__all__ = ["Place", "TableAccess", "by_nearness", "clock_ms"]

Place: TypeAlias = tuple[str, str | None]
"""Where an agent can be reached: from anywhere, and on its own machine."""

T = TypeVar("T")
_CACHE_BYTES = 64 * 1024 * 1024
_ENTRY_BYTES = 300


def by_nearness(agents: Iterable[Place], owner: Place | None = None) -> list[str]:
    """Addresses of agents: those of this machine, then the owner of the task's partition, then the others."""
    owners = [] if owner is None else [owner]
    best = {best_address(address, socket or ""): address for address, socket in [*owners, *agents]}
    owned = {address for address, _ in owners}
    return sorted(best, key=lambda address: (not is_socket(address), best[address] not in owned, address))


def clock_ms() -> int:
    return int(time.time() * 1000)


class TableAccess:
    """``agents``: addresses to be tried, best first; ``look_again``: the same, after none of them could answer.
    ``now_ms``: by which values expire.

    With ``keep`` the session stays open, and what was looked up is remembered; without, every look is a fresh one.
    """

    def __init__(
        self,
        settings: TableSettings,
        request: LookupRequest,
        agents: Callable[[], Sequence[str]],
        now_ms: Callable[[], int] = clock_ms,
        *,
        keep: bool,
        look_again: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.settings = settings
        self._request = request
        self._agents = agents
        self._now_ms = now_ms
        self._keep = keep
        self._look_again = look_again
        self._lock = threading.Lock()
        self._session: LookupSession | None = None
        self._known: dict[bytes, dict[str, bytes]] = {}
        self._known_bytes = 0

    def get_many(self, keys: Iterable[Any], name: str | None) -> dict[Any, Any]:
        """What exists of these: one request for all that are not known yet."""
        wanted = list(keys)
        with self._lock:
            try:
                found = self._through(lambda session: self._look(session, wanted, name)) if wanted else []
            finally:
                if not self._keep:
                    self._forget()
        return {key: value for key, value in zip(wanted, found, strict=True) if value is not ABSENT}

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _look(self, session: LookupSession, keys: list[Any], name: str | None) -> list[Any]:
        codec = session.codec
        if codec is None:
            return [ABSENT] * len(keys)
        if self._known_bytes > _CACHE_BYTES:
            self._known, self._known_bytes = {}, 0
        encoded = [codec.encode(key) for key in keys]
        unknown = {data: key for data, key in zip(encoded, keys, strict=True) if data not in self._known}
        if unknown:
            found = session.find(unknown)
            self._known |= found
            self._known_bytes += _ENTRY_BYTES * len(found)
            self._known_bytes += sum(len(value) for stored in found.values() for value in stored.values())
        # NOTE: decoded each time, so that a function may change what it gets, and what has expired is not there.
        now_ms = self._now_ms()
        return [codec.decode(self._known[data], name, now_ms) for data in encoded]

    def _through(self, work: Callable[[LookupSession], T]) -> T:
        """An agent that is gone, or has not got the table (any more), is replaced by the next one."""
        if self._session is not None:
            try:
                return work(self._session)
            except AgentUnavailableError:
                self._close_session()
        failures: list[AgentUnavailableError] = []
        for agents in (self._agents, self._look_again):
            for address in agents():
                try:
                    self._session = LookupSession(address, self._request, self.settings)
                    return work(self._session)
                except AgentUnavailableError as error:
                    failures.append(error)
                    self._close_session()
        table = f"global table {self._request.application}/{self._request.table}"
        raise AgentUnavailableError(
            f"{table} cannot be looked into: " + ("; ".join(map(str, failures)) or "no agent is known that has it")
        )

    def _forget(self) -> None:
        self._close_session()
        self._known, self._known_bytes = {}, 0

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
