"""A service's global tables in its own process: which agents have them, for look-ups and joins outside of apply()."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from changelog_state.agent.client import AgentClient
from changelog_state.config import StoreConfig
from changelog_state.errors import ConfigurationError, RestoreTimeoutError
from changelog_state.requests import LookupRequest
from changelog_state.routes import ask_all
from changelog_state.tables.access import Place, TableAccess, by_nearness
from changelog_state.tables.context import TaskTables
from changelog_state.tables.settings import TableSettings
from changelog_state.tables.table import GlobalTable
from restore.table_gate import TableGate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ServiceTables"]

_PAUSE_SECONDS = 0.05
_FRESH_SECONDS = 2.0


class ServiceTables:
    """``agents``: those that can be had, started if need be. ``patience_seconds``: how long a table may take to be
    read from its topic."""

    def __init__(
        self,
        config: StoreConfig,
        tables: Sequence[GlobalTable],
        agents: Callable[[SparkSession | None], Sequence[AgentClient]],
        patience_seconds: float,
    ) -> None:
        names = [_checked(table).name for table in tables]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"global_tables has a name twice: {names}; give each its own")
        self._config = config
        self._agents = agents
        self._patience_seconds = patience_seconds
        self.configs = {table.name: table.settings.config(config) for table in tables}
        self.requests = tuple((table.settings, self._request(table.name)) for table in tables)
        self._asker = f"service-{uuid.uuid4().hex}"
        self._found: dict[str, tuple[float, list[Place]]] = {}
        for table in tables:
            table.bind(self)

    def access(self, settings: TableSettings) -> TableAccess:
        """For one look: agents come and go while a process lives, and what they have grows newer."""

        def agents() -> list[str]:
            return by_nearness(self._places(settings.name, None))

        def look_again() -> list[str]:
            self._found.pop(settings.name, None)
            return agents()

        return TableAccess(settings, self._request(settings.name), agents, look_again=look_again, keep=False)

    def for_tasks(self, settings: TableSettings, df: DataFrame) -> TaskTables:
        from changelog_state import spark_bridge

        spark_bridge.use_drivers_python(df)
        places = self._places(settings.name, spark_bridge.spark_of(df))
        return TaskTables(((settings, self._request(settings.name)),), tuple(places))

    def _request(self, name: str) -> LookupRequest:
        config = self.configs[name]
        return LookupRequest(config.application, config.table, config.changelog_topic)

    def _places(self, name: str, spark: SparkSession | None) -> list[Place]:
        """Agents that have the table: all that was in its topic when this process first asked for it."""
        looked, places = self._found.get(name, (0.0, []))
        if not places or time.monotonic() - looked > _FRESH_SECONDS:
            places = self._ready_agents(name, spark)
            self._found[name] = time.monotonic(), places
        return places

    def _ready_agents(self, name: str, spark: SparkSession | None) -> list[Place]:
        everything = TableGate(list(self.configs.values()), self._asker)
        wanted = TableGate([self.configs[name]], self._asker)
        deadline = time.monotonic() + self._patience_seconds
        while True:
            answering = ask_all(self._agents(spark), self._config, **everything.request)
            ready = [one for one in answering if wanted.is_ready(one.tables)]
            if ready:
                return [(one.agent["address"], one.agent.get("socket")) for one in ready]
            missing = wanted.waiting_for({one.client.address: one.tables for one in answering})
            if time.monotonic() > deadline:
                raise RestoreTimeoutError(
                    f"global table {name} was not ready within {self._patience_seconds:g} s: "
                    + ("; ".join(missing) or "no agent answers")
                    + ". Raise restore_timeout_seconds if it only needs more time"
                )
            time.sleep(_PAUSE_SECONDS)


def _checked(table: Any) -> GlobalTable:
    if not isinstance(table, GlobalTable):
        raise ConfigurationError(f"global_tables has {table!r}; give instances of GlobalTable")
    return table
