"""The global tables that an agent follows: as long as somebody asks for them, whoever that is."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from changelog_state.agent.followed_table import FollowedTable
from changelog_state.config import TableConfig
from changelog_state.errors import AgentUnavailableError
from changelog_state.requests import LookupRequest
from changelog_state.store.directory import StateDirectory
from restore.bulk_pool import BulkPool

__all__ = ["Tables"]

logger = logging.getLogger(__name__)

_ROUND_SECONDS = 1.0
_IDLE_SECONDS = 600.0
_HEARD_SECONDS = 10.0
"""A driver that is there asks twice a second."""


class Tables:
    """Asking costs nothing and waits for nothing: a thread, the keeper, does what is asked for."""

    def __init__(self, directory: StateDirectory, pool: BulkPool) -> None:
        self._directory = directory
        self._pool = pool
        self._lock = threading.Lock()
        self._tables: dict[tuple[str, str], FollowedTable] = {}
        self._leaving: list[FollowedTable] = []
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._keeper: threading.Thread | None = None

    def follow(self, configs: Iterable[TableConfig], asker: str) -> None:
        """Have these followed from now on. Each is asked for again and again by whoever goes on needing it."""
        now = time.monotonic()
        with self._lock:
            for config in configs:
                self._wanted(config, asker, now).ask(asker, now)
            if self._keeper is None and self._tables and not self._closed.is_set():
                self._keeper = threading.Thread(target=self._run, name="tables", daemon=True)
                self._keeper.start()

    def statuses(self, application: str, asker: str | None = None) -> list[dict[str, Any]]:
        with self._lock:
            known = [table for (owner, _), table in sorted(self._tables.items()) if owner == application]
        return [table.status(asker) for table in known]

    def table(self, request: LookupRequest) -> FollowedTable:
        table = self._tables.get((request.application, request.table))
        if table is None or table.config.changelog_topic != request.topic:
            raise AgentUnavailableError(
                f"global table {request.application}/{request.table} (topic {request.topic}) is not followed by this "
                "agent; look things up within apply(), or through a table in global_tables= of a service"
            )
        return table

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        if self._keeper is not None:
            self._keeper.join()
        for table in [*self._leaving, *self._tables.values()]:
            table.stop()

    # -- inside ------------------------------------------------------------------------------------------

    def _wanted(self, config: TableConfig, asker: str, now: float) -> FollowedTable:
        """The one that is followed under this name, unless it is another one and nobody needs that any more."""
        key = config.application, config.table
        known = self._tables.get(key)
        if known is not None and (known.config == config or known.asked_since(now - _HEARD_SECONDS, but=asker)):
            return known
        if known is not None:
            logger.info("%s is followed with other settings from now on", config.name)
            self._leaving.append(known)
        self._tables[key] = FollowedTable(config, self._directory, self._pool, self._wake)
        return self._tables[key]

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(_ROUND_SECONDS)
            self._wake.clear()
            try:
                self._keep(time.monotonic())
            except Exception:
                logger.exception("a defect in keeping global tables, report it")

    def _keep(self, now: float) -> None:
        with self._lock:
            for key, table in list(self._tables.items()):
                table.forget_askers(now - _IDLE_SECONDS)
                if not table.asked_since(now - _IDLE_SECONDS):
                    logger.info("%s is followed no longer: nobody has asked for it", table.config.name)
                    self._leaving.append(self._tables.pop(key))
            leaving, self._leaving = self._leaving, []
            kept = list(self._tables.values())
        for table in leaving:
            table.stop()
        for table in kept:
            if not self._closed.is_set():
                table.keep(now)
