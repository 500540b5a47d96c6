"""Global tables at the gate: what each agent has of them, and what is still missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from changelog_state.config import TableConfig
from changelog_state.errors import ConfigurationError
from restore.claim_failures import error_of

__all__ = ["TableGate"]

Status = Mapping[str, Any]


class TableGate:
    """``asker``: the driver, by whose first ask agents know up to where it needs its tables."""

    def __init__(self, tables: Sequence[TableConfig], asker: str) -> None:
        self.tables = tuple(tables)
        self.asker = asker

    @property
    def request(self) -> dict[str, Any]:
        """What is added to a request to an agent."""
        return {"tables": self.tables, "asker": self.asker} if self.tables else {}

    def is_ready(self, statuses: Iterable[Status]) -> bool:
        """Whether this agent has every table."""
        found = _by_name(statuses)
        return all(table.table in found and found[table.table]["ready"] for table in self.tables)

    def waiting_for(self, answers: Mapping[str, Iterable[Status]]) -> list[str]:
        """What is missing at which agent, in words. Raises a failure that waiting does not mend."""
        missing = []
        for address, statuses in sorted(answers.items()):
            found = _by_name(statuses)
            for table in self.tables:
                status = found.get(table.table)
                _refuse_if_hopeless(table, status, address)
                if status is None or not status["ready"]:
                    missing.append(_waiting_text(table, status, address))
        return missing


def _by_name(statuses: Iterable[Status]) -> dict[str, Status]:
    return {status["table"]: status for status in statuses}


def _refuse_if_hopeless(table: TableConfig, status: Status | None, address: str) -> None:
    if status is None:
        return
    if (status["topic"], status["plain"]) != (table.changelog_topic, table.raw_keys):
        raise ConfigurationError(
            f"{table.name} follows topic {status['topic']} at the agent at {address}, for another service that is "
            f"running, but topic {table.changelog_topic} is wanted here; give one of the two another name"
        )
    error = error_of(status["error"]) if status["error"] else None
    if isinstance(error, ConfigurationError):
        raise error


def _waiting_text(table: TableConfig, status: Status | None, address: str) -> str:
    text = f"{table.name} (topic {table.changelog_topic}) at the agent at {address} "
    if status is None:
        return text + "was not asked for yet"
    lag = status["lag_records"]
    text += f"is {status['phase']}, " + ("its lag is not known" if lag is None else f"{lag} records behind")
    return text + (f", last error: {status['error']['message']}" if status["error"] else "")
