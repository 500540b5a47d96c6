"""A batch's Spark jobs: tasks are run, and their tickets collected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)
from pyspark.sql.types import StructType

from changelog_state import spark_bridge
from changelog_state.errors import ChangelogStateError
from changelog_state.job_errors import job_error, worth_another_run
from changelog_state.requests import RequestHeader
from changelog_state.task.spec import TICKET_COLUMN, TaskSpec
from changelog_state.task.task import run_task
from restore.coordinator import BatchLostError, Coordinator, Ticket

__all__ = ["BatchJob"]


class BatchJob:
    def __init__(
        self, coordinator: Coordinator, frame: DataFrame, schema: StructType, spec: TaskSpec, aside: Executor
    ) -> None:
        self.tickets: list[Ticket] = []
        self.materialized: list[DataFrame] = []
        self._coordinator = coordinator
        self._frame = frame
        self._schema = schema
        self._spec = spec
        self._aside = aside

    @property
    def headers(self) -> Mapping[int, RequestHeader]:
        return self._spec.headers

    @property
    def idle(self) -> list[int]:
        """Partitions in which something may be due, and for which Spark had no task."""
        return sorted(self._spec.due - {ticket.partition for ticket in self.tickets})

    def run_rows(self) -> Future[DataFrame]:
        """All tasks of the frame; the user's rows of what they gave are made meanwhile."""
        spec = self._spec
        result = self._frame.mapInArrow(lambda batches: run_task(spec, batches), self._schema)
        return self._run(result)

    def run_idle(self) -> Callable[[], DataFrame]:
        """Tasks without rows, for the idle partitions. Returns what makes the user's rows of all tasks together."""
        idle = self.idle
        spec = replace(self._spec, partition_of_task=dict(enumerate(idle)))
        numbers = spark_bridge.spark_of(self._frame).range(0, len(idle), 1, len(idle))
        result = numbers.mapInArrow(lambda batches: run_task(spec, _none_of(batches)), self._schema)
        self._run(result)
        return lambda: _rows_of(self.materialized[0].union(self.materialized[1]))

    def _run(self, result: DataFrame) -> Future[DataFrame]:
        coordinator, token = self._coordinator, self._spec.token
        result.persist(StorageLevel.MEMORY_AND_DISK)
        self.materialized.append(result)
        rows = self._aside.submit(_rows_of, result)
        lost: list[ChangelogStateError] = []

        def end_the_job(error: ChangelogStateError) -> None:
            lost.append(error)
            spark_bridge.cancel_tagged(result, token)

        try:
            # A task may not notice for long that its owner is gone without a word; the driver does, and ends the job.
            with spark_bridge.tag_jobs(result, token), coordinator.watching(self._spec.owners, end_the_job):
                collected = result.where(F.col(TICKET_COLUMN).isNotNull()).select(TICKET_COLUMN).collect()
        except (PySparkException, Py4JError) as error:
            self.free()
            coordinator.close_batch(token)
            if lost:  # it may answer again by now, but the job is over
                raise BatchLostError(str(lost[0])) from error
            ours = job_error(error)
            if ours is None:
                raise
            if worth_another_run(ours):
                raise BatchLostError(str(ours)) from error
            raise ours from error
        self.tickets += [Ticket(**json.loads(bytes(row[0]))) for row in collected]
        return rows

    def free(self) -> None:
        while self.materialized:
            self.materialized.pop().unpersist()


def _rows_of(result: DataFrame) -> DataFrame:
    return result.where(F.col(TICKET_COLUMN).isNull()).drop(TICKET_COLUMN)


def _none_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())
