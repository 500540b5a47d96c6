"""What a task may look into, as long as it runs: how a table in a user's function finds its agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from changelog_state.errors import ConfigurationError
from changelog_state.requests import LookupRequest
from changelog_state.tables.access import Place, TableAccess, by_nearness
from changelog_state.tables.settings import TableSettings

__all__ = ["LookUps", "TaskTables", "access_in_task", "open_tables", "opened_tables"]


@dataclass(frozen=True)
class TaskTables:
    """Frozen by the driver for its tasks: no Kafka, only who can be asked for what."""

    tables: tuple[tuple[TableSettings, LookupRequest], ...] = ()
    agents: tuple[Place, ...] = ()
    """Those that have all of the tables."""


class LookUps(Protocol):
    """A way into one table."""

    settings: TableSettings

    def get_many(self, keys: Iterable[Any], name: str | None) -> dict[Any, Any]: ...

    def close(self) -> None: ...


_open: dict[str, LookUps] | None = None


@contextmanager
def open_tables(given: TaskTables, owner: Place | None, now_ms: int) -> Iterator[None]:
    """Until the end of the block, this process's look-ups go to these. A worker runs one task at a time."""
    accesses = [
        TableAccess(settings, request, lambda: by_nearness(given.agents, owner), lambda: now_ms, keep=True)
        for settings, request in given.tables
    ]
    with opened_tables(accesses):
        yield


@contextmanager
def opened_tables(given: Iterable[LookUps]) -> Iterator[None]:
    """The same with ways that there are already."""
    global _open
    _open = {access.settings.name: access for access in given}
    try:
        yield
    finally:
        opened, _open = _open, None
        for access in opened.values():
            access.close()


def access_in_task(settings: TableSettings) -> LookUps | None:
    """None outside of a task."""
    if _open is None:
        return None
    access = _open.get(settings.name)
    if access is None or access.settings != settings:
        what = "is not among" if access is None else "differs from the one of this name in"
        raise ConfigurationError(
            f"global table {settings.name} {what} the service's tables ({', '.join(_open) or 'it has none'}); pass "
            "it in global_tables= of the StateService whose apply() runs this function"
        )
    return access
