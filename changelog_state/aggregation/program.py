"""What a task does for ``aggregate``: reads, merges and stages whole columns; rows of Python are never made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.avro.pieces import join_pieces
from changelog_state.aggregation.closing import Closing
from changelog_state.aggregation.columns import LATE, ROWS, TIMED, partial_name
from changelog_state.aggregation.key_columns import encode_key_columns
from changelog_state.aggregation.lifetimes import expiring_values, visible_values
from changelog_state.aggregation.merging import TaskAggregation
from changelog_state.aggregation.plan import Plan
from changelog_state.codec.entries import name_suffix
from changelog_state.codec.kinds import DATA, SCHEMA
from changelog_state.errors import InvalidInputError
from changelog_state.state.ttl import Ttl
from changelog_state.task.due import DueWork
from changelog_state.task.event_time import event_times_ms
from changelog_state.task.partition_task import PartitionTask

__all__ = ["AggregateProgram"]

_DATA = pa.scalar(DATA, pa.binary())


@dataclass(frozen=True)
class AggregateProgram:
    """For batches with the key, the plan's partials, and what ``columns.py`` names."""

    rewrites: ClassVar[bool] = False

    plan: Plan
    name: str
    """The state name under which a key's aggregates are kept."""
    drop_late: bool = False
    """Late rows come apart from the others of their key, and are left out."""
    closing: Closing | None = None
    """The last column of the key is a window, which ends."""

    def run(self, task: PartitionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        1. Per Arrow batch: read what is stored for its keys, merge, stage what has changed.
        2. In between, in the order of the keys, take away what has expired, and close windows that are over.
        """
        run = _Run(self, task)
        for batch in batches:
            accepted = run.accepted(batch)
            if accepted.num_rows:
                yield from run.process(accepted)
        yield from run.rest()


class _Run:
    def __init__(self, program: AggregateProgram, task: PartitionTask) -> None:
        self._task = task
        self._suffix = name_suffix(program.name)
        self._drop_late = program.drop_late
        self._closing = program.closing
        self._closed: list[pa.RecordBatch] = []
        self._aggregation = TaskAggregation(program.plan, self._find_schema)
        self._due: DueWork | None = None
        codec = program.plan.codec.single
        task.names[program.name] = self._suffix
        task.schemas[codec.fingerprint] = codec.schema_json

    def accepted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without what is late, if that is to be left out. What was counted by rows of ours is put right."""
        counts, spec = self._task.counts, self._task.spec
        counts.rows += _total(batch, ROWS) - batch.num_rows
        if spec.event_time is None:
            return batch
        without = _total(batch, ROWS) - _total(batch, TIMED)
        if without:
            raise InvalidInputError(
                f"event time {spec.event_time.column!r} is null in {without} rows; filter them out, or give them a "
                "time"
            )
        if spec.watermark_ms is not None:
            seen_late = pc.less(event_times_ms(batch, spec.event_time.column), spec.watermark_ms)
            counts.late_rows += _total(batch, LATE) - (pc.sum(seen_late).as_py() or 0)
        return batch.filter(pc.equal(batch.column(LATE), 0)) if self._drop_late else batch

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        task, spec = self._task, self._task.spec
        key_columns = [batch.column(name) for name in spec.key_columns]
        partials = [batch.column(partial_name(number)) for number in range(self._aggregation.partial_count)]
        encoded = encode_key_columns(task.codec, key_columns)
        record_keys = join_pieces([_DATA, encoded, pa.scalar(self._suffix, pa.binary())])
        stored = task.session.read_columns(record_keys)

        def key_of(row: int) -> Any:
            key = tuple(column[row].as_py() for column in key_columns)
            return key[0] if len(key) == 1 else key

        before = visible_values(stored, spec.batch_time_ms, spec.watermark_ms)
        values, output = self._aggregation.merge(before, partials, key_of)
        if spec.ttl is not None:
            values = self._expiring(batch, values, spec.ttl)
        if self._closing is not None:
            new = pc.is_null(stored)
            its_windows = (column.filter(new).to_pylist() for column in (encoded, key_columns[-1]))
            self._closing.set_timers(task, self._suffix, zip(*its_windows, strict=True))
        changed = pc.fill_null(pc.not_equal(values, stored), True)
        record_keys, values, stored = (column.filter(changed) for column in (record_keys, values, stored))
        self._stage(record_keys, values, stored, encoded)
        if self._closing is None or self._closing.emit == "update":
            yield self._output(key_columns, output)
        yield from self._taken_closed()

    def _output(self, key_columns: list[pa.Array], results: list[pa.Array]) -> pa.RecordBatch:
        schema = self._task.spec.output_schema
        if self._closing is not None:
            key_columns = self._closing.columns(key_columns, schema.field(len(key_columns) - 1).type)
        columns = [*key_columns, *results, pa.nulls(len(key_columns[0]), pa.binary())]
        typed = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.record_batch(typed, schema=schema)

    def _expiring(self, batch: pa.RecordBatch, values: pa.Array, ttl: Ttl) -> pa.Array:
        spec = self._task.spec
        if ttl.by_event_time:
            assert spec.event_time is not None, "checked by the call"
            begins = event_times_ms(batch, spec.event_time.column)
            if spec.watermark_ms is not None:  # what late rows change is not over at once
                begins = pc.max_element_wise(begins, spec.watermark_ms)
        else:
            begins = pa.repeat(pa.scalar(spec.batch_time_ms, pa.int64()), len(values))
        return expiring_values(values, pc.add(begins, ttl.milliseconds), by_event_time=ttl.by_event_time)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is due behind all keys."""
        nothing = pa.array([], pa.binary())
        self._stage(nothing, nothing, nothing, None)
        yield from self._taken_closed()

    def _taken_closed(self) -> Iterator[pa.RecordBatch]:
        closed, self._closed = self._closed, []
        yield from closed

    def _stage(self, record_keys: pa.Array, values: pa.Array, previous: pa.Array, encoded: pa.Array | None) -> None:
        """``encoded``: the keys of the batch; None: there are no more."""
        due = self._due_work()
        taken = due.take_through(None if encoded is None else encoded[-1].as_py())
        if taken:
            having_rows = set() if encoded is None else set(encoded.to_pylist())
            # What has been written anew is not taken away. A window that has rows is open: its grace has grown.
            written = set(record_keys.to_pylist())
            expired = [(DATA + key + suffix, stored) for key in taken for suffix, stored in due.expired.get(key, ())]
            expired = [record for record in expired if record[0] not in written]
            self._task.counts.expired += len(expired)
            over = [key for key in taken if key in due.timers and key not in having_rows]
            gone = sorted({*expired, *self._close(over)})
            if gone:
                keys, stored_values = (pa.array(column, pa.binary()) for column in zip(*gone, strict=True))
                record_keys = pa.concat_arrays([record_keys, keys])
                order = pc.array_sort_indices(record_keys)
                record_keys = record_keys.take(order)
                values = pa.concat_arrays([values, pa.nulls(len(keys), pa.binary())]).take(order)
                previous = pa.concat_arrays([previous, stored_values]).take(order)
        self._task.stage.add_columns(record_keys, values, previous)

    def _due_work(self) -> DueWork:
        if self._due is None:
            self._due = self._task.due(timers=self._closing is not None)
        return self._due

    def _close(self, keys: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Records of windows that are over, with what is stored; their results are kept for the output."""
        closing, task = self._closing, self._task
        keys = [] if closing is None else self._over(closing, keys)
        if closing is None or not keys:
            return []
        closing.forget_timers(task, self._suffix, keys)
        task.counts.timers += len(keys)
        record_keys = [DATA + key + self._suffix for key in keys]
        stored = task.session.read_columns(pa.array(record_keys, pa.binary()))
        if closing.emit == "close":
            self._give_out(closing, keys, stored)
        found = zip(record_keys, stored.to_pylist(), strict=True)
        return [(record_key, value) for record_key, value in found if value is not None]

    def _over(self, closing: Closing, keys: list[bytes]) -> list[bytes]:
        """Windows whose time has come; others have got a longer grace since their timers were set."""
        starts = {key: self._task.codec.decode(key)[0][-1] for key in keys}
        over = {key for key, start_ms in starts.items() if closing.is_over(start_ms, self._task.spec.watermark_ms)}
        closing.set_timers(self._task, self._suffix, ((key, starts[key]) for key in keys if key not in over))
        return [key for key in keys if key in over]

    def _give_out(self, closing: Closing, keys: list[bytes], stored: pa.Array) -> None:
        """The results of windows, without those that have outlived their time to live."""
        task = self._task
        values = visible_values(stored, task.spec.batch_time_ms, task.spec.watermark_ms)
        its_keys = [key for key, is_visible in zip(keys, values.is_valid().to_pylist(), strict=True) if is_visible]
        if not its_keys:
            return
        decoded = zip(*(task.codec.decode(key)[0] for key in its_keys), strict=True)
        fields = [*task.spec.output_schema][: len(task.spec.key_columns) - 1]
        kinds = [*(field.type for field in fields), pa.int64()]
        key_columns = [pa.array(column, kind) for column, kind in zip(decoded, kinds, strict=True)]
        self._closed.append(self._output(key_columns, self._aggregation.finished(values.drop_null())))

    def _find_schema(self, fingerprint: bytes) -> str | None:
        [found] = self._task.session.read([SCHEMA + fingerprint])
        return None if found is None else found.decode()


def _total(batch: pa.RecordBatch, column: str) -> int:
    return pc.sum(batch.column(column)).as_py() or 0
