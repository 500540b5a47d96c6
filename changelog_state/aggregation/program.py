"""What a task does for ``aggregate``: reads, merges and stages whole columns; rows of Python are never made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.avro.pieces import join_pieces
from changelog_state.aggregation.closing import Closing
from changelog_state.aggregation.columns import LATE, partial_name
from changelog_state.aggregation.key_columns import encode_key_columns
from changelog_state.aggregation.plan import Plan
from changelog_state.aggregation.run import AggregateRun, total
from changelog_state.codec.kinds import DATA
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


class _Run(AggregateRun):
    def __init__(self, program: AggregateProgram, task: PartitionTask) -> None:
        super().__init__(program.plan, program.name, task)
        self._drop_late = program.drop_late
        self._closing = program.closing
        self._closed: list[pa.RecordBatch] = []
        self._due: DueWork | None = None

    def accepted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Without what is late, if that is to be left out. Late rows were counted by rows of ours, too."""
        counts, spec = self._task.counts, self._task.spec
        self.counted(batch)
        if spec.event_time is None:
            return batch
        if spec.watermark_ms is not None:
            seen_late = pc.less(event_times_ms(batch, spec.event_time.column), spec.watermark_ms)
            counts.late_rows += total(batch, LATE) - (pc.sum(seen_late).as_py() or 0)
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

        values, results = self._aggregation.merge(self._visible(stored), partials, key_of)
        values = self._living(values, batch)
        if self._closing is not None:
            new = pc.is_null(stored)
            its_windows = (column.filter(new).to_pylist() for column in (encoded, key_columns[-1]))
            self._closing.set_timers(task, self._suffix, zip(*its_windows, strict=True))
        changed = pc.fill_null(pc.not_equal(values, stored), True)
        record_keys, values, stored = (column.filter(changed) for column in (record_keys, values, stored))
        self._stage(record_keys, values, stored, encoded)
        if self._closing is None or self._closing.emit == "update":
            yield self._output(self._with_window(key_columns), results)
        yield from self._taken_closed()

    def _with_window(self, key_columns: list[pa.Array]) -> list[pa.Array]:
        """The window in place of its start."""
        if self._closing is None:
            return key_columns
        *others, starts_ms = key_columns
        return [*others, self._window(starts_ms, pc.add(starts_ms, self._closing.size_ms))]

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
        values = self._visible(stored)
        its_keys = [key for key, is_visible in zip(keys, values.is_valid().to_pylist(), strict=True) if is_visible]
        if its_keys:
            states = self._aggregation.decoded(values.drop_null())
            key_columns = self._with_window(self._decoded_keys(its_keys))
            self._closed.append(self._output(key_columns, self._aggregation.results(states.columns)))
