"""Sessions of aggregates: a batch comes as one row per key and stretch of activity, which may join stored sessions.

As in ``task/session_windows.py`` a session's number in the key is the time of the row that began it, and stays when
the session grows to the left. Its bounds are two aggregates more (see ``windows.py``), merged like all others. Python
does the bookkeeping of what joins what; states are merged as whole columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.columns import FIRST, LAST, ROWS, partial_name
from changelog_state.aggregation.key_columns import encode_key_columns
from changelog_state.aggregation.merging import States, TaskAggregation
from changelog_state.aggregation.plan import Plan
from changelog_state.aggregation.run import AggregateRun
from changelog_state.codec.kinds import DATA, TIMER
from changelog_state.codec.timers import TimerTime, encode_timer
from changelog_state.store.base import next_prefix
from changelog_state.task.due import DueWork
from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.stretches import Stretch, together
from changelog_state.task.window_state import START_BYTES, encode_start, split_start
from changelog_state.windows import Session

__all__ = ["SessionProgram", "whole_keys"]

_KEYS_AT_ONCE = 5_000
_PAGE = 500
_LATEST = encode_start((1 << 63) - 1)


@dataclass(frozen=True)
class SessionProgram:
    """For batches as ``AggregateProgram`` has them, sorted by key and time, with the bounds of each stretch."""

    rewrites: ClassVar[bool] = False

    plan: Plan
    name: str
    kind: Session
    emit: Literal["update", "close"]

    def run(self, task: PartitionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        1. Per some keys: read their sessions in one request, and put in between the keys that have something due.
        2. Find what each stretch joins; merge; stage what has changed.
        3. Close the sessions of these keys whose time has come.
        """
        run = _Run(self, task)
        for batch in whole_keys(map(run.counted, batches), task.spec.key_columns):
            yield from run.process(batch)
        yield from run.rest()


def whole_keys(batches: Iterable[pa.RecordBatch], key_columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same rows, cut so that no key is in two batches. Rows of a key come together."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        same = np.ones(batch.num_rows, dtype=np.bool_)
        for column in map(batch.column, key_columns):
            same &= pc.equal(column, column[-1]).to_numpy(zero_copy_only=False)
        begin = 0 if same.all() else batch.num_rows - int(np.argmin(same[::-1]))
        goes_on = not begin and held and _last_key(held[-1], key_columns) == _last_key(batch, key_columns)
        if not goes_on:
            complete = [*held, batch.slice(0, begin)]
            if any(part.num_rows for part in complete):
                yield _one(complete)
            held = []
        held.append(batch.slice(begin))
    if held:
        yield _one(held)


def _last_key(batch: pa.RecordBatch, key_columns: Sequence[str]) -> list[Any]:
    return [batch.column(name)[-1].as_py() for name in key_columns]


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """A batch of its own memory: what is behind a slice would be taken for part of it."""
    table = pa.Table.from_batches(batches).combine_chunks()
    return table.take(pa.array(np.arange(table.num_rows))).to_batches()[0]


class _Stored(NamedTuple):
    """The sessions of some keys, in order."""

    encoded: list[bytes]
    values: list[bytes]
    """As they are in the store."""
    states: States
    bounds: list[tuple[int, int] | None]
    """The times of a session's first and last row; None if it has outlived its time to live."""
    of_key: Mapping[bytes, Sequence[int]]
    """Places of a key's sessions."""
    taken: Mapping[bytes, set[bytes]]
    """What there is for a key, under whatever name."""


@dataclass
class _Stretch(Stretch[int, int]):
    """By places among what is stored, and among the rows of the batch."""

    encoded: bytes = b""
    """The session that it becomes."""


class _Run(AggregateRun):
    def __init__(self, program: SessionProgram, task: PartitionTask) -> None:
        super().__init__(program.plan, program.name, task)
        self._kind = program.kind
        self._emit = program.emit
        self._timer = program.name
        fields = list(program.plan.functions)
        self._first, self._last = fields.index(FIRST), fields.index(LAST)

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        task = self._task
        key_columns = [batch.column(name) for name in task.spec.key_columns]
        anywhere = pa.array(np.zeros(batch.num_rows, dtype=np.int64))
        rows: dict[bytes, list[int]] = defaultdict(list)
        for row, encoded in enumerate(encode_key_columns(task.codec, [*key_columns, anywhere]).to_pylist()):
            rows[encoded[:-START_BYTES]].append(row)
        last_key = next(reversed(rows))
        yield from self._run_keys(rows, self._taken_due(last_key + _LATEST), batch)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is due behind all keys."""
        yield from self._run_keys({}, self._taken_due(None), None)

    @cached_property
    def _due(self) -> DueWork:
        return self._task.due(timers=True)

    def _taken_due(self, last: bytes | None) -> dict[bytes, list[bytes]]:
        """By key, the sessions that have something due."""
        found: dict[bytes, list[bytes]] = defaultdict(list)
        for encoded in self._due.take_through(last):
            found[split_start(encoded)[0]].append(encoded)
        return found

    def _run_keys(
        self, rows: Mapping[bytes, list[int]], due: Mapping[bytes, list[bytes]], batch: pa.RecordBatch | None
    ) -> Iterator[pa.RecordBatch]:
        keys = sorted({*rows, *due})
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[start : start + _KEYS_AT_ONCE]
            stored = self._read(some)
            changes = _Changes(self._task, self._suffix, stored)
            stretches = [each for key in some for each in self._joined(key, rows.get(key, ()), stored, batch)]
            if batch is not None and stretches:
                yield from self._go_on(stretches, stored, batch, changes)
            yield from self._close(some, due, stored, changes)
            changes.stage()

    def _read(self, keys: Sequence[bytes]) -> _Stored:
        session = self._task.session
        ranges = [(DATA + key, next_prefix(DATA + key)) for key in keys]
        pages = session.scan_many(ranges, _PAGE)  # type: ignore[arg-type]
        encoded: list[bytes] = []
        values: list[bytes] = []
        of_key, taken = {}, {}
        for key, (_, end), page in zip(keys, ranges, pages, strict=True):
            records = page
            while len(page) == _PAGE:
                page = session.scan(page[-1][0] + b"\0", end, _PAGE)  # type: ignore[arg-type]
                records += page
            width = len(DATA) + len(key) + START_BYTES
            taken[key] = {record_key[len(DATA) : width] for record_key, _ in records}
            mine = [record for record in records if record[0][width:] == self._suffix]
            of_key[key] = range(len(encoded), len(encoded) + len(mine))
            encoded += [record_key[len(DATA) : width] for record_key, _ in mine]
            values += [value for _, value in mine]
        states = self._aggregation.decoded(self._visible(pa.array(values, pa.binary())))
        both = (states.columns[number].to_pylist() for number in (self._first, self._last))
        bounds = [None if first is None else (first, last) for first, last in zip(*both, strict=True)]
        return _Stored(encoded, values, states, bounds, of_key, taken)

    def _joined(
        self, key: bytes, rows: Sequence[int], stored: _Stored, batch: pa.RecordBatch | None
    ) -> list[_Stretch]:
        """Stretches with rows, in order of time, without those that come too late."""
        if batch is None or not rows:
            return []
        parts = []
        for place in stored.of_key[key]:
            bounds = stored.bounds[place]
            if bounds is not None and not self._is_over(*bounds):
                parts.append(_Stretch(*bounds, sessions=[place]))
        firsts, lasts = (batch.column(partial_name(number)) for number in self._bound_partials)
        parts += [_Stretch(firsts[row].as_py(), lasts[row].as_py(), rows=[row]) for row in rows]
        taken, accepted = stored.taken[key], []
        for stretch in together(parts, self._kind.gap_ms):
            if stretch.sessions:
                stretch.encoded = stored.encoded[stretch.sessions[0]]
            elif self._is_over(stretch.first_ms, stretch.last_ms):
                counts = (batch.column(ROWS)[row].as_py() for row in stretch.rows)
                self._task.counts.late_rows += sum(counts)
                continue
            else:
                stretch.encoded = _free(key, stretch.first_ms, taken)
                taken.add(stretch.encoded)
            if stretch.rows:
                accepted.append(stretch)
        return accepted

    @cached_property
    def _bound_partials(self) -> tuple[int, int]:
        """The partials of the bounds: they have one each."""
        first, last = (self._aggregation.partials_before(number) for number in (self._first, self._last))
        return first, last

    def _go_on(
        self, stretches: list[_Stretch], stored: _Stored, batch: pa.RecordBatch, changes: _Changes
    ) -> Iterator[pa.RecordBatch]:
        """Merge what has come together, and write it as the session that began earliest."""
        spec = self._task.spec
        rows = pa.array([stretch.rows[0] for stretch in stretches])
        key_columns = [batch.column(name).take(rows) for name in spec.key_columns]

        def key_of(number: int) -> Any:
            key = tuple(column[number].as_py() for column in key_columns)
            return key[0] if len(key) == 1 else key

        columns = _merged(self._aggregation, stretches, stored.states, batch, key_of)
        latest = pa.array([stretch.rows[-1] for stretch in stretches])
        values = self._living(self._aggregation.encoded(columns), batch.take(latest))
        for stretch, value in zip(stretches, values.to_pylist(), strict=True):
            before = stored.bounds[stretch.sessions[0]] if stretch.sessions else None
            changes.write(stretch.encoded, value, stretch.sessions)
            if before is None or before[1] != stretch.last_ms or stretch.encoded in self._due.timers:
                changes.set_timer(stretch.encoded, self._closes_ms(stretch.first_ms, stretch.last_ms))
        if self._emit == "update":
            bounds = [(stretch.first_ms, stretch.last_ms) for stretch in stretches]
            yield self._sessions(key_columns, bounds, columns)

    def _close(
        self,
        keys: Sequence[bytes],
        due: Mapping[bytes, Sequence[bytes]],
        stored: _Stored,
        changes: _Changes,
    ) -> Iterator[pa.RecordBatch]:
        over = []
        for key in keys:
            for place in stored.of_key[key]:
                encoded, bounds = stored.encoded[place], stored.bounds[place]
                if changes.has(encoded):
                    continue
                if bounds is None:
                    self._task.counts.expired += 1
                    changes.remove(place)
                elif self._is_over(*bounds):
                    over.append(place)
                    changes.remove(place)
                elif self._is_due(encoded):  # a longer grace than when the timer was set
                    changes.set_timer(encoded, self._closes_ms(*bounds))
            for encoded in due.get(key, ()):
                self._task.counts.expired += changes.remove_others(encoded, self._due.expired.get(encoded, ()))
                if self._is_due(encoded) and not changes.has_timer(encoded):
                    changes.set_timer(encoded, None)
        self._task.counts.timers += len(over)
        if over and self._emit == "close":
            columns = [column.take(pa.array(over)) for column in stored.states.columns]
            *key_columns, _ = self._decoded_keys([stored.encoded[place] for place in over])
            yield self._sessions(key_columns, [stored.bounds[place] for place in over], columns)

    def _is_due(self, encoded: bytes) -> bool:
        return any(name == self._timer for name, _ in self._due.timers.get(encoded, ()))

    def _is_over(self, first_ms: int, last_ms: int) -> bool:
        watermark_ms = self._task.spec.watermark_ms
        return watermark_ms is not None and self._closes_ms(first_ms, last_ms) <= watermark_ms

    def _closes_ms(self, first_ms: int, last_ms: int) -> int:
        return self._kind.closes_ms(self._kind.window(first_ms, last_ms))

    def _sessions(
        self, key_columns: list[pa.Array], bounds: Sequence[Any], columns: Sequence[pa.Array]
    ) -> pa.RecordBatch:
        windows = [self._kind.window(*each) for each in bounds]
        window = self._window(*(pa.array(each, pa.int64()) for each in zip(*windows, strict=True)))
        results = self._aggregation.results(columns)
        shown = [each for number, each in enumerate(results) if number not in (self._first, self._last)]
        return self._output([*key_columns, window], shown)


def _free(key: bytes, first_ms: int, taken: set[bytes]) -> bytes:
    """A session that is about to be closed may have begun at the same time, or one of another name: when a function's
    session is over, all is removed that has its number."""
    while (encoded := key + encode_start(first_ms)) in taken:
        first_ms += 1
    return encoded


def _merged(
    aggregation: TaskAggregation, stretches: list[_Stretch], stored: States, batch: pa.RecordBatch, key_of: Any
) -> list[pa.Array]:
    """The state of each stretch: its first session's, with the other sessions' and then the rows' merged into it."""
    firsts = [stretch.sessions[0] if stretch.sessions else None for stretch in stretches]
    has_any = np.array([first is not None for first in firsts])
    places = pa.array(firsts, pa.int64())
    known = [has_any.copy() for _ in stored.known]
    for mask, its in zip(known, stored.known, strict=True):
        mask[has_any] = its[[first for first in firsts if first is not None]]
    states = States([column.take(places) for column in stored.columns], known)
    for nth in range(1, max(len(stretch.sessions) for stretch in stretches)):
        where = np.flatnonzero([len(stretch.sessions) > nth for stretch in stretches])
        others = [stretches[number].sessions[nth] for number in where]
        partials = aggregation.partials_of([column.take(pa.array(others)) for column in stored.columns])
        states = aggregation.merged_at(states, where, partials, [mask[others] for mask in stored.known], key_of)
    columns = [batch.column(partial_name(number)) for number in range(aggregation.partial_count)]
    for nth in range(max(len(stretch.rows) for stretch in stretches)):
        where = np.flatnonzero([len(stretch.rows) > nth for stretch in stretches])
        rows = pa.array([stretches[number].rows[nth] for number in where])
        states = aggregation.merged_at(states, where, [column.take(rows) for column in columns], None, key_of)
    return states.columns


class _Changes:
    """What becomes of sessions and their timers, and of what has expired beside them."""

    def __init__(self, task: PartitionTask, suffix: bytes, stored: _Stored) -> None:
        self._task = task
        self._suffix = suffix
        self._stored = stored
        self._records: dict[bytes, tuple[bytes | None, bytes | None]] = {}
        """By record key: the new value, and the one before."""
        self._timers: dict[bytes, int | None] = {}

    def has(self, encoded: bytes) -> bool:
        return DATA + encoded + self._suffix in self._records

    def has_timer(self, encoded: bytes) -> bool:
        return encoded in self._timers

    def write(self, encoded: bytes, value: bytes, sessions: Sequence[int]) -> None:
        """What was these sessions is one."""
        previous = self._stored.values[sessions[0]] if sessions else None
        self._records[DATA + encoded + self._suffix] = value, previous
        for place in sessions[1:]:
            self.remove(place)

    def remove(self, place: int) -> None:
        encoded = self._stored.encoded[place]
        self._records[DATA + encoded + self._suffix] = None, self._stored.values[place]
        self._timers[encoded] = None

    def remove_others(self, encoded: bytes, expired: Iterable[tuple[bytes, bytes]]) -> int:
        """What others keep for a session. Gives how much it was."""
        others = [(DATA + encoded + suffix, value) for suffix, value in expired if suffix != self._suffix]
        self._records |= {record_key: (None, value) for record_key, value in others}
        return len(others)

    def set_timer(self, encoded: bytes, at_ms: int | None) -> None:
        self._timers[encoded] = at_ms

    def stage(self) -> None:
        stage = self._task.stage
        for record_key, (value, previous) in sorted(self._records.items()):
            if value != previous:
                stage.add(record_key, value, previous)
        stage.send()
        for encoded, at_ms in self._timers.items():
            timer = None if at_ms is None else encode_timer(TimerTime(at_ms, by_event_time=True))
            stage.add_later(TIMER + encoded + self._suffix, timer)
