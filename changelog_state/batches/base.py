"""What all kinds of batches have in common: the service, which runs their programs, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from changelog_state.calls import Call, Lateness
from changelog_state.changelog.topic import Topic
from changelog_state.settings import ServiceSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from changelog_state.arrangement import OrderBy
    from changelog_state.kafka_output import KafkaOutput
    from changelog_state.metrics import BatchSummary
    from changelog_state.task.program import Program

__all__ = ["BatchOptions", "Batches"]


class BatchOptions(TypedDict, total=False):
    """What all kinds of batches take, as ``apply`` explains it."""

    partitioning: str
    order_by: OrderBy
    timeout: float | None
    query_id: str | None
    output_topic: str | KafkaOutput | None


class Batches:
    """Part of ``StateService``, which says how a program is run."""

    _settings: ServiceSettings
    _topic: Topic | None
    """The changelog's, once there was a batch."""

    def _run(self, call: Call, program: Program, lateness: Lateness | None = None) -> tuple[DataFrame, BatchSummary]:
        raise NotImplementedError
