"""How a service finds its agents: those registered for its application, and the one of its own state directory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

from changelog_state.agent.client import PULSE_SECONDS, AgentClient
from changelog_state.agent.launcher import described_agent, find_agent, start_agent, stop_agent
from changelog_state.agent.transport import best_address
from changelog_state.changelog.agents import AgentDirectory
from changelog_state.config import ClusterConfig, StoreConfig
from changelog_state.errors import AgentUnavailableError, ChangelogStateError, UnavailableError
from changelog_state.store.directory import is_held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Fleet"]

logger = logging.getLogger(__name__)


class Fleet:
    """For any thread. ``start``: whether agents may be started where none is found."""

    def __init__(self, config: StoreConfig, state_dir: Path | None, default_dir: Path, *, start: bool) -> None:
        self._config = config
        self._given_dir = state_dir
        self._state_dir = state_dir or default_dir
        self._may_start = start
        self._cluster = ClusterConfig(config.application, config.bootstrap_servers, config.kafka, config.topic)
        self._directory = AgentDirectory(self._cluster)
        self._lock = threading.RLock()
        self._clients: dict[str, AgentClient] = {}
        """By incarnation, so that an agent that was started anew gets a new one."""
        self._local: tuple[str, AgentClient] | None = None
        """Incarnation and client of the agent of the state directory."""
        self._started_here = False
        self._on_executors = False
        self._replenishing: threading.Thread | None = None

    def known(self) -> list[AgentClient]:
        """Agents that are registered, whether or not they answer, and the one of the state directory if it does."""
        with self._lock:
            registered = {
                record.incarnation: self._client(record.incarnation, record.address, record.socket)
                for record in self._directory.read()
            }
            local = self._find_local()
            if local is not None:
                registered.setdefault(*local)
            for gone in self._clients.keys() - registered.keys():
                del self._clients[gone]  # not closed: another thread may be waiting for its answer
            return list(registered.values())

    def needed(self, spark: SparkSession | None = None) -> list[AgentClient]:
        """Agents of which at least one answers; started if there is none and that is allowed."""
        known = self.known()
        if self._any_answers(known):
            if spark is not None:
                self._replenish(spark)
            return known
        if not self._may_start:
            raise AgentUnavailableError(
                f"no agent answers: none is registered for application {self._config.application} in topic "
                f"{self._cluster.agents_topic}, none serves {self._state_dir}; start one with `changelog-state agent "
                f"--advertise HOST:PORT` on each worker node (or, on one machine, `changelog-state agent --state-dir "
                f"{self._state_dir}`), or use agents='auto'"
            )
        with self._lock:
            if spark is None or not self._start_on_executors(spark):
                start_agent(self._state_dir).close()
                self._started_here = self._find_local() is not None
        return self.known()

    def close(self) -> None:
        """Stop the agent that was started on this machine; others end by themselves when no driver is left."""
        with self._lock:
            known = {client.address: client for client in self._clients.values()}
            if self._local is not None and self._started_here:
                try:
                    stop_agent(self._local[1], self._state_dir)
                except UnavailableError as error:
                    logger.info("agent was gone already: %s", error)
            for client in known.values():
                client.close()
            self._directory.close()
            self._clients, self._local, self._started_here = {}, None, False

    # -- inside ------------------------------------------------------------------------------------------

    def _client(self, incarnation: str, address: str, socket: str) -> AgentClient:
        if incarnation not in self._clients:
            self._clients[incarnation] = AgentClient(best_address(address, socket))
        return self._clients[incarnation]

    def _find_local(self) -> tuple[str, AgentClient] | None:
        """The agent of the state directory: the one known, else whichever is there by now."""
        if self._local is not None:
            incarnation, client = self._local
            try:
                client.hello(as_driver=True, timeout_seconds=PULSE_SECONDS)
                return self._local
            except AgentUnavailableError:
                described = described_agent(self._state_dir)
                if described is not None and described["incarnation"] == incarnation and is_held(self._state_dir):
                    return self._local  # it is there, and slow: whether it is too slow is for others to judge
                self._local, self._started_here = None, False
        found = find_agent(self._state_dir)
        if found is not None:
            incarnation = found.hello(as_driver=True)["incarnation"]
            self._local = incarnation, self._clients.setdefault(incarnation, found)
        return self._local

    @staticmethod
    def _any_answers(clients: Iterable[AgentClient]) -> bool:
        """As soon as one does: others may be lost, and are not waited for."""

        def answers(client: AgentClient) -> bool:
            try:
                client.check()
            except AgentUnavailableError as error:
                logger.info("%s", error)
                return False
            return True

        clients = list(clients)
        pool = ThreadPoolExecutor(max(1, len(clients)), thread_name_prefix="fleet")
        try:
            return any(asked.result() for asked in as_completed(pool.submit(answers, client) for client in clients))
        finally:
            pool.shutdown(wait=False)

    def _start_on_executors(self, spark: SparkSession) -> bool:
        """Whether this is a cluster, on whose executors' hosts agents run now."""
        from changelog_state import spark_bridge

        if spark_bridge.is_local(spark):
            return False
        from changelog_state.executor_agents import start_on_executors

        start_on_executors(spark, self._config, None if self._given_dir is None else str(self._given_dir))
        self._on_executors = True
        return True

    def _replenish(self, spark: SparkSession) -> None:
        """Beside what is going on: hosts that have no agent (any more) get one, which then takes its share."""
        if not self._on_executors:
            return

        def work() -> None:
            try:
                self._start_on_executors(spark)
            except ChangelogStateError as error:
                logger.warning("agents were not started on all executors' hosts: %s", error)

        with self._lock:
            if self._replenishing is None or not self._replenishing.is_alive():
                self._replenishing = threading.Thread(target=work, name="replenish", daemon=True)
                self._replenishing.start()
