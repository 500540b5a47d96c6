"""What Spark runs: one task, one state partition of one batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from changelog_state.agent.transport import best_address
from changelog_state.errors import PartitioningError
from changelog_state.faults import fault_point
from changelog_state.tables.context import open_tables
from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.program import unpickled
from changelog_state.task.session import Session
from changelog_state.task.spec import PARTITION_COLUMN, TaskSpec
from changelog_state.task.worker_tuning import tune_worker
from restore.coordinator import Owner, Ticket

__all__ = ["run_task"]


def run_task(spec: TaskSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """
    1. Check that all rows belong to this task's partition.
    2. Run the program over them, which stages what it changes; its rows are staged too if they are for a topic.
    3. Seal the stage; emit the ticket.
    """
    tune_worker()
    context = TaskContext.get()
    assert context is not None
    spark_partition = context.partitionId()
    mapping = spec.partition_of_task
    partition = spark_partition if mapping is None else mapping.get(spark_partition)
    rows = _checked(spec, spark_partition, partition, batches)
    if partition is None:
        # Spark has given it no rows either: looking for some is what proves it.
        for _ in rows:
            pass
        return
    owner = spec.owners[partition]
    skip = partition in spec.skipped
    if skip:
        spec = replace(spec, rewrite=False)  # it would have to read what was before the batch
    task = PartitionTask(spec, lambda: _session(owner, spec, partition), is_due=partition in spec.due and not skip)
    try:
        with open_tables(spec.tables, (owner.address, owner.socket), spec.batch_time_ms):
            accepted = task.accepted(batch for batch in rows if not skip)
            yield from task.produced(unpickled(spec.program).run(task, accepted))
        sealed = task.finish()
    finally:
        task.close()
    fault_point("task.after_stage")
    ticket = Ticket(partition, spark_partition, context.attemptNumber(), **sealed)
    yield task.output.ticket(json.dumps(asdict(ticket)).encode())


def _session(owner: Owner, spec: TaskSpec, partition: int) -> Session:
    return Session(best_address(owner.address, owner.socket or ""), spec.headers[partition])


def _checked(
    spec: TaskSpec, spark_partition: int, partition: int | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Only rows of this task's own partition, without the column that proves it."""
    for batch in batches:
        if not batch.num_rows:
            continue
        batch = batch.rename_columns(list(spec.columns))
        found = pc.min_max(batch.column(PARTITION_COLUMN)).as_py()
        proven = found["min"] == found["max"] == partition
        if not proven and (found["min"] is not None or spec.partition_of_task is None):
            raise PartitioningError(
                f"Spark partition {spark_partition} holds rows of partitions {found['min']} to {found['max']}, "
                f"expected only {partition}; nothing was committed. Report this together with df.explain()"
            )
        yield batch.drop_columns([PARTITION_COLUMN])
