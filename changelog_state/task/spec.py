"""Everything a task needs, frozen by the driver: no service, no Kafka, no Spark session."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from changelog_state.requests import RequestHeader
from changelog_state.tables.context import TaskTables
from restore.coordinator import Owner

__all__ = ["PARTITION_COLUMN", "TICKET_COLUMN", "TaskSpec"]

PARTITION_COLUMN = "__changelog_state_partition"
TICKET_COLUMN = "__changelog_state_ticket"


@dataclass(frozen=True)
class TaskSpec:
    headers: dict[int, RequestHeader]
    owners: dict[int, Owner]
    function: bytes
    """The user's function, pickled."""
    columns: tuple[str, ...]
    """Their real names, in the order in which they arrive."""
    key_columns: tuple[str, ...]
    key_types: tuple[str, ...]
    output_schema: pa.Schema
    """With the ticket column last."""
    batch_time_ms: int
    partition_of_task: dict[int, int] | None
    """Source mode: Spark partition → state partition. None: they are the same."""
    skipped: frozenset[int]
    """Partitions that have this batch and cannot recompute its rows."""
    largest_record_bytes: int
    token: str
    """Also keeps Spark from taking this plan for an earlier batch's: equal plans are cached as one."""
    tables: TaskTables = field(default_factory=TaskTables)
    """What the function may look into."""
