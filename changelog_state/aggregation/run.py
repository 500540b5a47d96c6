"""What the programs of aggregates have in common: counting rows, times to live, and output."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.columns import ROWS, TIMED
from changelog_state.aggregation.lifetimes import expiring_values, visible_values
from changelog_state.aggregation.merging import TaskAggregation
from changelog_state.aggregation.plan import Plan
from changelog_state.codec.entries import name_suffix
from changelog_state.codec.kinds import SCHEMA
from changelog_state.errors import InvalidInputError
from changelog_state.task.event_time import event_times_ms
from changelog_state.task.partition_task import PartitionTask

__all__ = ["AggregateRun", "total"]


class AggregateRun:
    def __init__(self, plan: Plan, name: str, task: PartitionTask) -> None:
        self._task = task
        self._suffix = name_suffix(name)
        self._aggregation = TaskAggregation(plan, self._find_schema)
        codec = plan.codec.single
        task.names[name] = self._suffix
        task.schemas[codec.fingerprint] = codec.schema_json

    def _find_schema(self, fingerprint: bytes) -> str | None:
        [found] = self._task.session.read([SCHEMA + fingerprint])
        return None if found is None else found.decode()

    def counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What was counted by rows of ours is put right. No row of the user's is without its time."""
        spec = self._task.spec
        self._task.counts.rows += total(batch, ROWS) - batch.num_rows
        without = 0 if spec.event_time is None else total(batch, ROWS) - total(batch, TIMED)
        if spec.event_time is not None and without:
            raise InvalidInputError(
                f"event time {spec.event_time.column!r} is null in {without} rows; filter them out, or give them a "
                "time"
            )
        return batch

    def _visible(self, stored: pa.Array) -> pa.Array:
        return visible_values(stored, self._task.spec.batch_time_ms, self._task.spec.watermark_ms)

    def _living(self, values: pa.Array, batch: pa.RecordBatch) -> pa.Array:
        """The values of a batch's rows with the time until which they live, if there is one."""
        spec = self._task.spec
        if spec.ttl is None:
            return values
        if spec.ttl.by_event_time:
            assert spec.event_time is not None, "checked by the call"
            begins = event_times_ms(batch, spec.event_time.column)
            if spec.watermark_ms is not None:  # what late rows change is not over at once
                begins = pc.max_element_wise(begins, spec.watermark_ms)
        else:
            begins = pa.repeat(pa.scalar(spec.batch_time_ms, pa.int64()), len(values))
        ends = pc.add(begins, spec.ttl.milliseconds)
        return expiring_values(values, ends, by_event_time=spec.ttl.by_event_time)

    def _output(self, key_columns: Sequence[pa.Array], results: Sequence[pa.Array]) -> pa.RecordBatch:
        """Of key columns with the window behind them, if there is one."""
        schema = self._task.spec.output_schema
        columns = [*key_columns, *results, pa.nulls(len(key_columns[0]), pa.binary())]
        typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.record_batch(typed, schema=schema)

    def _decoded_keys(self, keys: Sequence[bytes]) -> list[pa.Array]:
        """The columns of keys that have a window as their last part, which is a column of long."""
        task = self._task
        decoded = zip(*(task.codec.decode(key)[0] for key in keys), strict=True)
        fields = [*task.spec.output_schema][: len(task.spec.key_types) - 1]
        kinds = [*(field.type for field in fields), pa.int64()]
        return [pa.array(column, kind) for column, kind in zip(decoded, kinds, strict=True)]

    def _window(self, starts_ms: pa.Array, ends_ms: pa.Array) -> pa.Array:
        """The column of windows, of Spark's type."""
        kind = self._task.spec.output_schema.field(len(self._task.spec.key_types) - 1).type
        parts = [
            pc.multiply(each.cast(pa.int64()), 1_000).cast(field.type)
            for each, field in zip((starts_ms, ends_ms), kind, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind))


def total(batch: pa.RecordBatch, column: str) -> int:
    return pc.sum(batch.column(column)).as_py() or 0
