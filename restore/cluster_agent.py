"""What the driver's side needs of an agent, so that it need not know how agents are reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from changelog_state.changelog.record import StoreIdentity
from changelog_state.config import StoreConfig, TableConfig
from changelog_state.requests import RequestHeader

__all__ = ["Agent"]


class Agent(Protocol):
    """Every call raises ``AgentUnavailableError`` if the agent does not answer."""

    address: str

    def pulse(
        self, config: StoreConfig, *, tables: Iterable[TableConfig] = (), asker: str | None = None
    ) -> dict[str, Any]: ...

    def claim(
        self,
        config: StoreConfig,
        identity: StoreIdentity,
        epoch: int,
        partitions: Iterable[int],
        wait_seconds: float,
        restore_memory_mb: int,
        above: Mapping[int, int],
    ) -> list[dict[str, Any]]: ...

    def follow(
        self,
        config: StoreConfig,
        epoch: int,
        partitions: Iterable[int],
        known_claims: Mapping[int, int],
        restore_memory_mb: int,
    ) -> list[dict[str, Any]]: ...

    def open_batch(
        self,
        config: StoreConfig,
        query: str,
        batch: int,
        epoch: int,
        token: str,
        partitions: Iterable[int],
        tables: Iterable[TableConfig] = (),
        asker: str | None = None,
    ) -> dict[str, Any]: ...

    def commit(self, header: RequestHeader, stage_id: str | None, mutations: bytes) -> dict[str, Any]: ...

    def close_batch(self, config: StoreConfig, token: str) -> None: ...

    def clear(self, config: StoreConfig, epoch: int, partitions: Iterable[int]) -> int: ...
