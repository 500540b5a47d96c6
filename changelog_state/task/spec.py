"""Everything a task needs, frozen by the driver: no service, no Kafka, no Spark session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import pyarrow as pa

from changelog_state.requests import RequestHeader
from changelog_state.state.ttl import Ttl
from changelog_state.state.variables import Variable
from changelog_state.tables.context import TaskTables
from restore.coordinator import Owner

__all__ = [
    "LATE_COLUMN",
    "PARTITION_COLUMN",
    "TICKET_COLUMN",
    "BatchSpec",
    "EventTime",
    "OutputFormat",
    "OutputTopic",
    "TaskSpec",
]

PARTITION_COLUMN = "__changelog_state_partition"
TICKET_COLUMN = "__changelog_state_ticket"
LATE_COLUMN = "__changelog_state_late"
"""Of output rows: what is no output, but a row that was too late. Such rows have nothing else."""
OutputFormat: TypeAlias = Literal["json", "avro", "columns"]


@dataclass(frozen=True)
class EventTime:
    column: str
    late: Literal["accept", "drop", "judged"] = "accept"
    """What happens to rows from before the watermark: they are rows like others, or they are counted and left out.
    Judged: the program says what is late, and counts it."""


@dataclass(frozen=True)
class OutputTopic:
    """Where output rows go beside being the batch's result, and as what."""

    name: str
    format: OutputFormat
    key: tuple[str, ...]
    """The columns of the record's key."""
    largest_record_bytes: int = 0
    needs_key: bool = False
    """It is compacted: Kafka does not take records without a key."""


@dataclass(frozen=True)
class BatchSpec:
    """What a batch is, wherever it runs."""

    batch: int
    program: bytes
    """What is done with the rows, pickled (see ``program.py``)."""
    columns: tuple[str, ...]
    """The rows' real names, in the order in which they arrive."""
    key_columns: tuple[str, ...]
    key_types: tuple[str, ...]
    output_schema: pa.Schema
    """With the ticket column last."""
    batch_time_ms: int
    largest_record_bytes: int
    watermark_ms: int | None = None
    """Before this batch."""
    late_watermark_ms: int | None = None
    """Before the batch before it."""
    event_time: EventTime | None = None
    variables: Mapping[str, Variable] = field(default_factory=dict)
    ttl: Ttl | None = None
    generations: Mapping[str, Mapping[bytes, str]] = field(default_factory=dict)
    """By variable, the schemas that it was ever declared with, by fingerprint."""
    rewrite: bool = False
    """Values of earlier generations are all written anew in this batch."""
    output_topic: OutputTopic | None = None


@dataclass(frozen=True)
class TaskSpec(BatchSpec):
    """The same for tasks: who owns what, and what they may do there."""

    headers: Mapping[int, RequestHeader] = field(default_factory=dict)
    owners: Mapping[int, Owner] = field(default_factory=dict)
    partition_of_task: Mapping[int, int] | None = None
    """Spark partition → state partition. None: they are the same."""
    due: frozenset[int] = frozenset()
    """Partitions in which a timer is due or a value has expired, maybe."""
    skipped: frozenset[int] = frozenset()
    """Partitions that have this batch and cannot recompute its rows."""
    token: str = ""
    """Also keeps Spark from taking this plan for an earlier batch's: equal plans are cached as one."""
    tables: TaskTables = field(default_factory=TaskTables)
    """What the function may look into."""
