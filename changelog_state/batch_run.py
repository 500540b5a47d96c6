"""One micro-batch, step by step: gate, job, check, commit."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from changelog_state.arrangement import Arranged
from changelog_state.batch_job import BatchJob
from changelog_state.changelog.record import BatchRecord
from changelog_state.changelog.topic import RECORD_OVERHEAD_BYTES
from changelog_state.config import StoreConfig
from changelog_state.errors import (
    BatchRefusedError,
    OutputSchemaError,
    PartitioningError,
    UnavailableError,
)
from changelog_state.faults import fault_point
from changelog_state.requests import LookupRequest, RequestHeader
from changelog_state.state.ttl import Ttl
from changelog_state.state.variables import Variable
from changelog_state.tables.context import TaskTables
from changelog_state.tables.settings import TableSettings
from changelog_state.task.schema import user_schema
from changelog_state.task.spec import TICKET_COLUMN, EventTime, OutputTopic, TaskSpec
from restore.coordinator import BatchLostError, Coordinator, Owner, Ticket
from restore.gate import MarkerView, NewQueryPolicy, UnreplayablePolicy, Verdict, judge_batch

__all__ = ["BatchRun", "Outcome", "Work", "output_schema"]

logger = logging.getLogger(__name__)

_MOST_RUNS = 5


@dataclass(frozen=True)
class Work:
    """What is to be done with a batch's rows, however it is carried out."""

    program: bytes
    schema: StructType
    """Of the output rows, with the ticket's column."""
    variables: Mapping[str, Variable] = field(default_factory=dict)
    ttl: Ttl | None = None
    event_time: EventTime | None = None
    watermark_delay_ms: int = 0
    watermark_ms: int | None = None
    """Before the first batch of a store."""
    output_topic: OutputTopic | None = None
    rewrite: bool = False
    """Write all values of earlier generations anew."""


@dataclass(frozen=True)
class Outcome:
    """What a batch gave. Its state has changed."""

    rows: DataFrame
    materialized: Sequence[DataFrame]
    """What the rows are made of, held by Spark until it is freed."""
    record: BatchRecord
    tickets: Sequence[Ticket]
    replayed: frozenset[int]
    """Partitions that had the batch already, and were not changed."""


@dataclass(frozen=True)
class _Gate:
    owners: Mapping[int, Owner]
    verdict: Verdict
    next_due: Mapping[int, Mapping[str, int | None]]

    def due(self, record: BatchRecord) -> frozenset[int]:
        """Partitions in which something may be due. One that has the batch already may not know it any more."""
        clocks = {"processing": record.batch_time_ms, "event": record.watermark_before_ms}

        def is_due(partition: int) -> bool:
            soonest = self.next_due[partition]
            return any(
                now is not None and soonest.get(clock) is not None and soonest[clock] <= now  # type: ignore[operator]
                for clock, now in clocks.items()
            )

        return frozenset(p for p in self.owners if p in self.verdict.replayed or is_due(p))


@dataclass(frozen=True)
class BatchRun:
    """One batch: what the user asked for, and the coordinator that carries it out."""

    config: StoreConfig
    coordinator: Coordinator
    arranged: Arranged
    query: str
    batch: int
    offsets_hash: str | None
    work: Work
    key_columns: tuple[str, ...]
    largest_record_bytes: int
    on_new_query: NewQueryPolicy
    on_unreplayable: UnreplayablePolicy
    timeout_seconds: float | None
    aside: Executor
    """For what can happen while the job runs."""
    tables: tuple[tuple[TableSettings, LookupRequest], ...] = ()
    """What the function may look into."""
    into_empty: bool = False
    """The batch is a store's first one, or else a replay that changes what it changed before."""

    def run(self) -> Outcome:
        """
        1. Gate: every partition ready, and this batch fits all markers.
        2. Job: every task stages; its ticket arrives only if Spark says that it succeeded. Meanwhile the batch
           record becomes durable, unless it has to wait for the rows' event times.
        3. Check: one ticket per partition. Those that have no rows, but something due, get a job of their own.
        4. Commit, at all owners.
        If an owner is lost on the way, the batch runs again; who has committed answers from before-images.
        """
        for number in range(1, _MOST_RUNS + 1):
            try:
                return self._run_once()
            except BatchLostError as error:
                logger.warning(
                    "store %s: batch %d runs again (%d of %d): %s",
                    self.config.name,
                    self.batch,
                    number,
                    _MOST_RUNS - 1,
                    error,
                )
                self.coordinator.forget_agents()
                lost = error
        raise UnavailableError(
            f"store {self.config.name}: batch {self.batch} was tried {_MOST_RUNS} times and an owner was lost "
            f"each time; last reason: {lost}. Nothing is lost: run the query again once the agents are stable"
        )

    def _run_once(self) -> Outcome:
        token = uuid.uuid4().hex
        try:
            gate = self._gate(token)
        except BatchRefusedError:
            self.coordinator.close_batch(token)  # so that the store can be cleared, if that is what helps
            raise
        record, verdict = gate.verdict.known or self._new_record(gate.verdict), gate.verdict
        recorded: Future[None] | None = None
        if verdict.known is None and self.work.event_time is None:
            recorded = self.aside.submit(self.coordinator.control.record_batch, record)
        job = self._new_job(gate, record, token)
        try:
            rows = job.run_rows()
        finally:
            if recorded is not None:
                recorded.exception()  # waited for; raised below if the job has succeeded
        try:
            _check(job.tickets, self.config.partitions, exact=self.arranged.partition_of_task is None)
            if job.idle:
                rows = self.aside.submit(job.run_idle())
            if recorded is not None:
                recorded.result()
            elif verdict.known is None:
                record = replace(record, watermark_after_ms=self._watermark_after(record, job.tickets))
                self.coordinator.control.record_batch(record)
            fault_point("driver.before_commit")
            answers = self.coordinator.commit(gate.owners, job.headers, job.tickets, verdict.replayed)
            fault_point("driver.after_commit")
            self._report(answers, verdict)
        except BaseException:
            job.free()
            self.coordinator.close_batch(token)
            raise
        self.coordinator.close_batch(token)
        return Outcome(rows.result(), job.materialized, record, job.tickets, verdict.replayed)

    def _watermark_after(self, record: BatchRecord, tickets: Sequence[Ticket]) -> int | None:
        seen = [ticket.counts["max_event_ms"] for ticket in tickets if ticket.counts["max_event_ms"] is not None]
        reached = [latest - self.work.watermark_delay_ms for latest in seen]
        before = record.watermark_before_ms
        return max(reached if before is None else [*reached, before], default=None)

    def _gate(self, token: str) -> _Gate:
        while True:
            owners, statuses = self.coordinator.open_gate(self.query, self.batch, token, self.timeout_seconds)
            markers = [view for view in map(MarkerView.from_status, statuses) if view is not None]
            verdict = judge_batch(
                store=self.config.name,
                query=self.query,
                batch=self.batch,
                epoch=self.coordinator.epoch,
                offsets_hash=self.offsets_hash,
                markers=markers,
                record=self.coordinator.control.batch,
                on_new_query=self.on_new_query,
                on_unreplayable=self.on_unreplayable,
                into_empty=self.into_empty,
            )
            if not verdict.clear_first:
                return _Gate(owners, verdict, {status["partition"]: status["next_due"] for status in statuses})
            cleared = self.coordinator.clear()
            self.coordinator.control.declare_anew()
            logger.warning("store %s: new query %s, %d records cleared", self.config.name, self.query, cleared)

    def _new_record(self, verdict: Verdict) -> BatchRecord:
        last = self.coordinator.control.batch
        watermark_ms = self.work.watermark_ms if last is None else last.watermark_after_ms
        # A clock that was put back, or another driver's, must not bring back what has expired.
        now_ms = int(time.time() * 1000)
        return BatchRecord(
            query=self.query,
            batch=self.batch,
            epoch=self.coordinator.epoch,
            batch_time_ms=now_ms if last is None else max(now_ms, last.batch_time_ms),
            watermark_before_ms=watermark_ms,
            watermark_after_ms=watermark_ms,
            offsets_hash=self.offsets_hash,
            adopted_epoch=verdict.adopted_epoch,
            late_watermark_ms=None if last is None else last.watermark_before_ms,
        )

    def _new_job(self, gate: _Gate, record: BatchRecord, token: str) -> BatchJob:
        work = self.work
        variables = self.coordinator.control.variables
        rewrite = work.rewrite and variables.has_old_generations(work.variables)
        spec = TaskSpec(
            batch=self.batch,
            program=work.program,
            columns=self.arranged.columns,
            key_columns=self.key_columns,
            key_types=tuple(self.coordinator.identity.key_types),
            output_schema=to_arrow_schema(work.schema),
            batch_time_ms=record.batch_time_ms,
            largest_record_bytes=self.largest_record_bytes - RECORD_OVERHEAD_BYTES,
            watermark_ms=record.watermark_before_ms,
            late_watermark_ms=record.late_watermark_ms,
            event_time=work.event_time,
            variables=work.variables,
            ttl=work.ttl,
            generations=variables.writer_schemas(),
            rewrite=rewrite,
            output_topic=work.output_topic,
            headers={partition: self._header(owner, token) for partition, owner in gate.owners.items()},
            owners=gate.owners,
            partition_of_task=self.arranged.partition_of_task,
            # Values of earlier generations may be in every partition, be there rows for it or not.
            due=frozenset(gate.owners) if rewrite else gate.due(record),
            skipped=gate.verdict.skipped,
            token=token,
            tables=TaskTables(self.tables, tuple(self.coordinator.table_agents()) if self.tables else ()),
        )
        frame = self.arranged.frame_at(record.watermark_before_ms)
        return BatchJob(self.coordinator, frame, work.schema, spec, self.aside)

    def _header(self, owner: Owner, token: str) -> RequestHeader:
        return RequestHeader(
            application=self.config.application,
            store=self.config.store,
            partition=owner.partition,
            epoch=self.coordinator.epoch,
            claim=owner.claim,
            query=self.query,
            batch=self.batch,
            token=token,
        )

    def _report(self, answers: dict[int, dict[str, Any]], verdict: Verdict) -> None:
        different = sorted(p for p, answer in answers.items() if answer["replayed"] and not answer["same"])
        different = [p for p in different if p not in verdict.skipped]
        if different and self.into_empty:
            raise BatchRefusedError(
                f"store {self.config.name} has another import of batch {self.batch} of query {self.query}: "
                f"partitions {different} differ from what was imported now, and stay as they were; clear() it, "
                "then import again"
            )
        if different:
            logger.warning(
                "store %s: replaying batch %d computed other changes, or other rows for its topic, in partitions %s "
                "than the first time; the first ones stand. The function is not deterministic, or depends on the "
                "order of rows (order_by=)",
                self.config.name,
                self.batch,
                different,
            )
        if verdict.skipped:
            logger.warning(
                "store %s: batch %d yields no rows for partitions %s: it is in their state, but the values from "
                "before it are gone",
                self.config.name,
                self.batch,
                sorted(verdict.skipped),
            )


def output_schema(schema: str | StructType, more: Sequence[StructField] = ()) -> StructType:
    """The user's fields, nullable, what comes beside them, and the ticket's."""
    parsed = user_schema(schema)
    if TICKET_COLUMN in parsed.fieldNames():
        raise OutputSchemaError(f"schema {schema!r} has a column {TICKET_COLUMN!r}; this name is taken: rename it")
    fields = [StructField(field.name, field.dataType, True, field.metadata) for field in parsed.fields]
    return StructType([*fields, *more, StructField(TICKET_COLUMN, BinaryType(), True)])


def _check(tickets: Sequence[Ticket], partitions: int, *, exact: bool) -> None:
    """One ticket per partition; none at all if Spark saw that there are no rows."""
    by_partition: dict[int, Ticket] = {}
    for ticket in tickets:
        other = by_partition.setdefault(ticket.partition, ticket)
        if other is not ticket:
            raise PartitioningError(
                f"state partition {ticket.partition} was processed by Spark partitions {other.spark_partition} and "
                f"{ticket.spark_partition}; nothing was committed. Do not split source partitions (minPartitions) "
                "and do not union sources, or use partitioning='hash'"
            )
    missing = sorted(set(range(partitions)) - set(by_partition))
    if exact and by_partition and missing:
        raise PartitioningError(
            f"no task reported for state partitions {missing}; nothing was committed. Report this together with "
            "df.explain()"
        )
