"""One micro-batch, step by step: gate, job, check, commit."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from changelog_state import spark_bridge
from changelog_state.arrangement import Arranged
from changelog_state.changelog.record import BatchRecord
from changelog_state.config import StoreConfig
from changelog_state.errors import (
    ChangelogStateError,
    FunctionError,
    OutputSchemaError,
    PartitioningError,
    UnavailableError,
)
from changelog_state.faults import fault_point
from changelog_state.job_errors import job_error, worth_another_run
from changelog_state.requests import LookupRequest, RequestHeader
from changelog_state.tables.context import TaskTables
from changelog_state.tables.settings import TableSettings
from changelog_state.task.schema import user_schema
from changelog_state.task.spec import TICKET_COLUMN, TaskSpec
from changelog_state.task.task import run_task
from restore.coordinator import BatchLostError, Coordinator, Owner, Ticket
from restore.gate import MarkerView, NewQueryPolicy, UnreplayablePolicy, Verdict, judge_batch

__all__ = ["BatchRun", "output_schema", "pickled"]

logger = logging.getLogger(__name__)

_MOST_RUNS = 5
_RECORD_OVERHEAD_BYTES = 512


@dataclass(frozen=True)
class BatchRun:
    """One ``apply``: what the user asked for, and the coordinator that carries it out."""

    config: StoreConfig
    coordinator: Coordinator
    arranged: Arranged
    query: str
    batch: int
    offsets_hash: str | None
    function: bytes
    key_columns: tuple[str, ...]
    schema: StructType
    largest_record_bytes: int
    on_new_query: NewQueryPolicy
    on_unreplayable: UnreplayablePolicy
    timeout_seconds: float | None
    aside: Executor
    """For what can happen while the job runs."""
    tables: tuple[tuple[TableSettings, LookupRequest], ...] = ()
    """What the function may look into."""

    def run(self, on_materialized: Callable[[DataFrame], None]) -> DataFrame:
        """
        1. Gate: every partition ready, and this batch fits all markers.
        2. Job: every task stages; its ticket arrives only if Spark says that it succeeded. Meanwhile the batch
           record becomes durable.
        3. Check: one ticket per partition.
        4. Commit, at all owners.
        If an owner is lost on the way, the batch runs again; who has committed answers from before-images.
        """
        for number in range(1, _MOST_RUNS + 1):
            try:
                return self._run_once(on_materialized)
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

    def _run_once(self, on_materialized: Callable[[DataFrame], None]) -> DataFrame:
        token = uuid.uuid4().hex
        owners, verdict = self._gate(token)
        record = verdict.known or self._new_record(verdict)
        recorded: Future[None] | None = None
        if verdict.known is None:
            recorded = self.aside.submit(self.coordinator.control.record_batch, record)
        headers = {partition: self._header(owner, token) for partition, owner in owners.items()}
        try:
            result, rows, tickets = self._job(headers, owners, record, verdict, token)
        finally:
            if recorded is not None:
                recorded.exception()  # waited for; raised below if the job has succeeded
        try:
            if recorded is not None:
                recorded.result()
            _check(tickets, self.config.partitions, exact=self.arranged.partition_of_task is None)
            fault_point("driver.before_commit")
            answers = self.coordinator.commit(owners, headers, tickets, verdict.replayed)
            fault_point("driver.after_commit")
        except BaseException:
            result.unpersist()
            self.coordinator.close_batch(token)
            raise
        self._report(answers, verdict)
        self.coordinator.close_batch(token)
        on_materialized(result)
        fault_point("driver.before_return")
        return rows.result()

    def _gate(self, token: str) -> tuple[dict[int, Owner], Verdict]:
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
            )
            if not verdict.clear_first:
                return owners, verdict
            cleared = self.coordinator.clear()
            logger.warning("store %s: new query %s, %d records cleared", self.config.name, self.query, cleared)

    def _new_record(self, verdict: Verdict) -> BatchRecord:
        return BatchRecord(
            query=self.query,
            batch=self.batch,
            epoch=self.coordinator.epoch,
            batch_time_ms=int(time.time() * 1000),
            watermark_before_ms=None,
            watermark_after_ms=None,
            offsets_hash=self.offsets_hash,
            adopted_epoch=verdict.adopted_epoch,
        )

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

    def _job(
        self,
        headers: dict[int, RequestHeader],
        owners: dict[int, Owner],
        record: BatchRecord,
        verdict: Verdict,
        token: str,
    ) -> tuple[DataFrame, Future[DataFrame], list[Ticket]]:
        """Runs the tasks; returns all that they gave, the user's rows of it (made meanwhile), and the tickets."""
        spec = TaskSpec(
            headers=headers,
            owners=owners,
            function=self.function,
            columns=self.arranged.columns,
            key_columns=self.key_columns,
            key_types=tuple(self.coordinator.identity.key_types),
            output_schema=to_arrow_schema(self.schema),
            batch_time_ms=record.batch_time_ms,
            partition_of_task=self.arranged.partition_of_task,
            skipped=verdict.skipped,
            largest_record_bytes=self.largest_record_bytes - _RECORD_OVERHEAD_BYTES,
            token=token,
            tables=TaskTables(self.tables, tuple(self.coordinator.table_agents()) if self.tables else ()),
        )
        result = self.arranged.frame.mapInArrow(lambda batches: run_task(spec, batches), self.schema)
        result.persist(StorageLevel.MEMORY_AND_DISK)
        rows = self.aside.submit(lambda: result.where(F.col(TICKET_COLUMN).isNull()).drop(TICKET_COLUMN))
        lost: list[ChangelogStateError] = []

        def end_the_job(error: ChangelogStateError) -> None:
            lost.append(error)
            spark_bridge.cancel_tagged(result, token)

        try:
            # A task may not notice for long that its owner is gone without a word; the driver does, and ends the job.
            with spark_bridge.tag_jobs(result, token), self.coordinator.watching(owners, end_the_job):
                collected = result.where(F.col(TICKET_COLUMN).isNotNull()).select(TICKET_COLUMN).collect()
        except (PySparkException, Py4JError) as error:
            result.unpersist()
            self.coordinator.close_batch(token)
            if lost:  # it may answer again by now, but the job is over
                raise BatchLostError(str(lost[0])) from error
            ours = job_error(error)
            if ours is None:
                raise
            if worth_another_run(ours):
                raise BatchLostError(str(ours)) from error
            raise ours from error
        return result, rows, [Ticket(**json.loads(bytes(row[0]))) for row in collected]

    def _report(self, answers: dict[int, dict[str, Any]], verdict: Verdict) -> None:
        different = sorted(p for p, answer in answers.items() if answer["replayed"] and not answer["same"])
        different = [p for p in different if p not in verdict.skipped]
        if different:
            logger.warning(
                "store %s: replaying batch %d computed other changes in partitions %s than the first time; the "
                "first ones stand. The function is not deterministic, or depends on the order of rows (order_by=)",
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


def pickled(function: Callable[..., Any]) -> bytes:
    if not callable(function):
        raise FunctionError(f"func is {function!r}; give a function of (key, rows, state)")
    try:
        return cloudpickle.dumps(function)  # type: ignore[no-any-return]
    except Exception as error:
        raise FunctionError(
            f"the function cannot be sent to Spark's workers: {error}; do not refer to sockets, locks, open files, "
            "Spark sessions or clients in it: make them inside the function"
        ) from error


def output_schema(schema: str | StructType) -> StructType:
    """The user's fields, nullable, and the ticket's."""
    parsed = user_schema(schema)
    if TICKET_COLUMN in parsed.fieldNames():
        raise OutputSchemaError(f"schema {schema!r} has a column {TICKET_COLUMN!r}; this name is taken: rename it")
    fields = [StructField(field.name, field.dataType, True, field.metadata) for field in parsed.fields]
    return StructType([*fields, StructField(TICKET_COLUMN, BinaryType(), True)])


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
