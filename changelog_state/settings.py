"""A service's settings beyond where its store is: checked when they are made, and all that a service pickles as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from changelog_state.config import DEFAULT_RESTORE_MEMORY_MB, StoreConfig
from changelog_state.durations import Duration
from changelog_state.errors import ConfigurationError
from changelog_state.state.handle import declared
from changelog_state.state.ttl import Ttl, ttl_of
from changelog_state.state.variables import Variable
from changelog_state.tables.table import GlobalTable
from restore.gate import NewQueryPolicy, UnreplayablePolicy

__all__ = ["ServiceSettings", "check_choice"]


@dataclass(frozen=True)
class ServiceSettings:
    """The arguments of ``StateService``, as they were given."""

    application: str
    store: str
    bootstrap_servers: str
    partitions: int
    state_dir: str | Path | None = None
    standby_replicas: int = 0
    kafka: Mapping[str, Any] | None = None
    topic: Mapping[str, Any] | None = None
    agents: str = "auto"
    state: Sequence[Variable] = ()
    ttl: Duration | Ttl | None = None
    migration: Literal["lazy", "eager"] = "lazy"
    on_new_query: NewQueryPolicy = "refuse"
    on_unreplayable: UnreplayablePolicy = "refuse"
    restore_timeout_seconds: float = 1800.0
    restore_memory_mb: int = DEFAULT_RESTORE_MEMORY_MB
    show_progress: bool = True
    replica_lag_seconds: float = 60.0
    replica_lag_records: int = 100_000
    global_tables: Sequence[GlobalTable] = ()
    config: StoreConfig = field(init=False, repr=False)
    variables: Mapping[str, Variable] = field(init=False, repr=False)
    lifetime: Ttl | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        config = StoreConfig(
            self.application,
            self.store,
            self.bootstrap_servers,
            self.partitions,
            dict(self.kafka or {}),
            dict(self.topic or {}),
        )
        check_choice("agents", self.agents, ("auto", "external"))
        check_choice("on_new_query", self.on_new_query, ("refuse", "continue", "clear"))
        check_choice("migration", self.migration, ("lazy", "eager"))
        check_choice("on_unreplayable", self.on_unreplayable, ("refuse", "skip"))
        _check_whole("restore_memory_mb", self.restore_memory_mb, 1)
        _check_whole("standby_replicas", self.standby_replicas, 0)
        object.__setattr__(self, "config", config)
        object.__setattr__(self, "variables", declared(self.state))
        object.__setattr__(self, "lifetime", ttl_of(self.ttl))

    def as_given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name, each in self.__dataclass_fields__.items() if each.init}


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(f"{name} is {value!r}; use one of {', '.join(map(repr, choices))}")


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name} is {value!r}; give a whole number of at least {least}")
