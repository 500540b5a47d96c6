"""The user's function, once per key: rows in, rows out, and what it made of the key's state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from changelog_state.codec.entries import name_suffix
from changelog_state.codec.kinds import DATA
from changelog_state.durations import point_ms, to_datetime
from changelog_state.state.handle import State, state_class
from changelog_state.task.due import DueWork
from changelog_state.task.grouping import Row, grouped
from changelog_state.task.key_state import failed, prefetch, prefetched_variables, rows_of, stage_state, stage_timers
from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.rewriting import Rewriting

__all__ = ["KeyedProgram"]

_KEYS_AT_ONCE = 10_000


@dataclass(frozen=True)
class KeyedProgram:
    rewrites: ClassVar[bool] = True

    function: Callable[..., Any]
    on_timer: Callable[..., Any] | None = None
    on_late: Callable[..., Any] | None = None
    """Instead of ``function``, for rows from before the watermark."""

    def run(self, task: PartitionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        1. Group the rows by key, and put in between the keys that have something due.
        2. Per Arrow batch: read all keys' state in one request.
        3. Per key: the function, the late rows, the timers that are due, in order of time; stage what changed.
        """
        run = _Run(self, task)
        for keys, rows in grouped(batches, task.spec.key_columns):
            yield from run.process(keys, rows)
        yield from run.rest()


class _Run:
    def __init__(self, program: KeyedProgram, task: PartitionTask) -> None:
        self._program = program
        self._task = task
        self._due: DueWork | None = None
        self._rewriting: Rewriting | None = None
        variables = task.spec.variables
        self._state_class = state_class(variables)
        self._prefetched = prefetched_variables(variables)

    def process(self, keys: list[Any], rows: list[list[Row]]) -> Iterator[pa.RecordBatch]:
        encoded = self._task.encode_keys(keys)
        begin = 0
        while begin < len(keys):
            due_keys, through = self._taken_through(encoded[-1])
            end = len(keys) if through is None else bisect_right(encoded, through, begin)
            some = keys[begin:end], rows[begin:end], encoded[begin:end]
            yield from self._run_keys(*(self._with_due_keys(due_keys, *some) if due_keys else some))
            begin = end

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Keys with something due behind all rows."""
        while True:
            due_keys, through = self._taken_through(None)
            for start in range(0, len(due_keys), _KEYS_AT_ONCE):
                encoded = due_keys[start : start + _KEYS_AT_ONCE]
                keys = [self._task.codec.decode(key)[0] for key in encoded]
                yield from self._run_keys(keys, [[] for _ in keys], encoded)
            if through is None:
                return

    def _taken_through(self, last: bytes | None) -> tuple[list[bytes], bytes | None]:
        """Keys up to this one that have something to do beside their rows; and how far they go, if there are many."""
        rewritten: list[bytes] = []
        if self._task.spec.rewrite:
            if self._rewriting is None:
                self._rewriting = Rewriting(self._task.spec.variables, self._task.codec, self._task.session)
            rewritten, last = self._rewriting.take_through(last, _KEYS_AT_ONCE)
        taken = self._due_work().take_through(last)
        return (sorted({*taken, *rewritten}) if rewritten else taken), last

    def _due_work(self) -> DueWork:
        if self._due is None:
            self._due = self._task.due(timers=self._program.on_timer is not None)
        return self._due

    def _with_due_keys(
        self, due_keys: list[bytes], keys: list[Any], rows: list[list[Row]], encoded: list[bytes]
    ) -> tuple[list[Any], list[list[Row]], list[bytes]]:
        known = set(encoded)
        merged: list[tuple[bytes, Any, list[Row]]] = list(zip(encoded, keys, rows, strict=True))
        merged += [(key, self._task.codec.decode(key)[0], []) for key in due_keys if key not in known]
        merged.sort(key=lambda each: each[0])
        return [key for _, key, _ in merged], [its for _, _, its in merged], [key for key, _, _ in merged]

    def _run_keys(self, keys: list[Any], rows: list[list[Row]], encoded: list[bytes]) -> Iterator[pa.RecordBatch]:
        if not keys:
            return
        task, due = self._task, self._due_work()
        context = task.context
        context.timer_clock = None if self._program.on_timer is None else task.default_clock
        stored_of_all = task.session.get(encoded)
        collections = prefetch(task, self._prefetched, encoded, stored_of_all)
        make, function, suffixes, add = self._state_class, self._program.function, task.names, task.stage.add
        only_rows = (
            self._program.on_late is None
            and not due.timers
            and not due.expired
            and not collections
            and self._rewriting is None
        )
        produced: list[Row] = []
        for number, (key, encoded_key, key_rows, stored) in enumerate(
            zip(keys, encoded, rows, stored_of_all, strict=True)
        ):
            state = make(stored, context, encoded_key)
            context.take_rows(key_rows)
            try:
                if only_rows:
                    result = function(key, key_rows, state)
                    if result is not None:
                        produced.extend(rows_of(result))
                else:
                    for name, entries, complete in collections.get(number, ()):
                        state._prefetched(name, entries, complete)
                    self._run_key(key, key_rows, state, produced)
                if state._timers is not None or due.timers:
                    self._fire(key, encoded_key, state, produced)
                if state._collections is not None or due.expired or self._rewriting is not None:
                    stage_state(
                        task,
                        encoded_key,
                        state,
                        due.expired.get(encoded_key, ()),
                        rewritten=self._rewritten(encoded_key),
                    )
                    continue
                for name, value, previous in state.changed():
                    suffix = suffixes.get(name)
                    if suffix is None:
                        suffix = suffixes[name] = name_suffix(name)
                    add(DATA + encoded_key + suffix, value, previous)
            except Exception as error:
                raise failed(task, key, error) from error
        task.stage.send()
        if produced:
            yield task.output.to_arrow(produced)

    def _run_key(self, key: Any, rows: list[Row], state: State, produced: list[Row]) -> None:
        late: list[Row] = []
        if self._program.on_late is not None:
            rows, late = self._split_late(rows)
        for function, its_rows in ((self._program.function, rows), (self._program.on_late, late)):
            if its_rows and function is not None:
                produced.extend(rows_of(function(key, its_rows, state) or ()))

    def _split_late(self, rows: list[Row]) -> tuple[list[Row], list[Row]]:
        spec = self._task.spec
        if spec.event_time is None or spec.watermark_ms is None:
            return rows, []
        column, watermark_ms = spec.event_time.column, spec.watermark_ms
        late = [point_ms(row[column], "event time") < watermark_ms for row in rows]
        return (
            [row for row, is_late in zip(rows, late, strict=True) if not is_late],
            [row for row, is_late in zip(rows, late, strict=True) if is_late],
        )

    def _fire(self, key: Any, encoded_key: bytes, state: State, produced: list[Row]) -> None:
        on_timer, spec = self._program.on_timer, self._task.spec
        timers = state._key_timers()
        if on_timer is not None:
            stored = self._due_work().timers.get(encoded_key, ())
            may_call = partial(self._task.may_call, due=self._due_work())
            for name, time in timers.due(stored, spec.batch_time_ms, spec.watermark_ms, may_call):
                self._task.counts.timers += 1
                produced.extend(rows_of(on_timer(key, name, to_datetime(time.at_ms), state) or ()))
        stage_timers(self._task, encoded_key, timers)

    def _rewritten(self, encoded_key: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
        return iter(()) if self._rewriting is None else self._rewriting.changes(encoded_key, self._task.context)
