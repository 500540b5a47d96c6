"""A driver that runs the tasks' real code, without Spark: programs, timers, event time, values that expire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from changelog_state.agent.client import AgentClient
from changelog_state.agent.transport import best_address
from changelog_state.changelog.record import BatchRecord
from changelog_state.codec.kinds import DATA, TIMER
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogStateError
from changelog_state.job_errors import worth_another_run
from changelog_state.state.handle import declared
from changelog_state.state.variables import Variable
from changelog_state.store.base import next_prefix
from changelog_state.task.keyed import KeyedProgram
from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.session import Session
from changelog_state.task.spec import BatchSpec, EventTime
from restore.coordinator import BatchLostError, Ticket
from tests.support.driver import CODEC, Driver, Gate, home_of

_MOST_ENTRIES = 1_000_000


class TaskDriver(Driver):
    """Rows are dicts with a string ``key`` and a timestamp ``at``. Batch n is at ``times_ms[n]``."""

    def __init__(
        self,
        config: StoreConfig,
        agents: Any,
        program: KeyedProgram,
        variables: Sequence[Variable],
        times_ms: Sequence[int],
        watermark_delay_ms: int,
    ) -> None:
        super().__init__(config, agents)
        self.program = program
        self.variables = declared(variables)
        self.times_ms = times_ms
        self.watermark_delay_ms = watermark_delay_ms

    def run_once(self, batch: int, rows: Sequence[Any]) -> list[Any]:
        gate = self.gate(batch)
        last = self.coordinator.control.batch
        watermark_ms = None if last is None else last.watermark_after_ms
        known = gate.verdict.known
        record = known or BatchRecord(
            self.query, batch, self.epoch, self.times_ms[batch], watermark_ms, watermark_ms, None, None
        )
        produced: list[Any] = []
        tickets: list[Ticket] = []
        for partition in range(self.config.partitions):
            mine = [row for row in rows if home_of(row["key"], self.config.partitions) == partition]
            mine.sort(key=lambda row: CODEC.encode(row["key"]))
            try:
                output, ticket = self._task(gate, record, partition, mine)
            except ChangelogStateError as error:
                if worth_another_run(error):
                    raise BatchLostError(str(error)) from error
                raise
            produced += output
            tickets.append(ticket)
        if known is None:
            seen = [t.counts["max_event_ms"] for t in tickets if t.counts["max_event_ms"] is not None]
            reached = [*(latest - self.watermark_delay_ms for latest in seen), record.watermark_before_ms]
            after = max((each for each in reached if each is not None), default=None)
            self.coordinator.control.record_batch(replace(record, watermark_after_ms=after))
        self.answers = self.commit(gate, tickets)
        self.coordinator.close_batch(gate.headers[0].token)
        return produced

    def _task(self, gate: Gate, record: BatchRecord, partition: int, rows: list[Any]) -> tuple[list[Any], Ticket]:
        owner = gate.owners[partition]
        spec = BatchSpec(
            batch=record.batch,
            program=b"",
            columns=(),
            key_columns=("key",),
            key_types=CODEC.types,
            output_schema=pa.schema([]),
            batch_time_ms=record.batch_time_ms,
            largest_record_bytes=1_000_000,
            watermark_ms=record.watermark_before_ms,
            event_time=EventTime("at"),
            variables=self.variables,
        )
        address = best_address(owner.address, owner.socket or "")
        task = PartitionTask(spec, lambda: Session(address, gate.headers[partition]), is_due=True, output=_Plain())
        batches = [pa.RecordBatch.from_pylist(rows)] if rows else []
        try:
            produced = [row for output in self.program.run(task, task.accepted(iter(batches))) for row in output]
            return produced, Ticket(partition, partition, 0, **task.finish())
        finally:
            task.close()

    def records(self, client: AgentClient) -> dict[bytes, bytes]:
        """State and timers as they are stored, expired values too."""
        return {
            key: value
            for partition in range(self.config.partitions)
            for kind in (DATA, TIMER)
            for key, value in client.scan(self.config, partition, kind, next_prefix(kind), _MOST_ENTRIES)
        }


class _Plain:
    def to_arrow(self, rows: Any) -> Any:
        return list(rows)
