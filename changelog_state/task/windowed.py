"""The user's functions, once per key and window. A window is a key of its own: the user's key, then the window.

So a window's state is like that of any key, and removing it touches nothing else. All windows of a key are in the
partition of the key, one behind the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from changelog_state.codec.entries import split_suffix
from changelog_state.codec.kinds import DATA
from changelog_state.state.handle import State, state_class
from changelog_state.store.base import next_prefix
from changelog_state.task.due import DueWork
from changelog_state.task.event_time import event_times_ms
from changelog_state.task.fixed_windows import FixedWindows
from changelog_state.task.grouping import Row, grouped
from changelog_state.task.key_state import Prefetched, failed, prefetch, prefetched_variables
from changelog_state.task.partition_task import PartitionTask
from changelog_state.task.rewriting import Rewriting
from changelog_state.task.session_windows import SessionWindows
from changelog_state.task.sliding_windows import SlidingWindows
from changelog_state.task.stored_rows import StoredRows
from changelog_state.task.window_functions import TIME, WindowCalls, WindowFunctions
from changelog_state.task.window_state import START_BYTES, KeyWindows, encode_start, split_start
from changelog_state.windows import Session, Sliding, WindowKind

__all__ = ["WINDOW_TYPES", "WindowedProgram"]

WINDOW_TYPES: Final = ("long",)
"""What the key of a window has behind the columns of the user's key."""
_KEYS_AT_ONCE: Final = 1_000
_WINDOWS_AT_ONCE: Final = 10_000
_PAGE: Final = 500


@dataclass(frozen=True)
class WindowedProgram:
    rewrites: ClassVar[bool] = True

    functions: WindowFunctions
    kind: WindowKind
    more_key_types: tuple[str, ...] = WINDOW_TYPES

    def run(self, task: PartitionTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        1. Group the rows by the user's key, and put in between the keys that have something due.
        2. Per some keys: read the windows that are concerned in one request.
        3. Per key: the functions, window by window; stage what changed.
        """
        run = _Run(self, task)
        for keys, rows in grouped(run.with_times(batches), task.spec.key_columns):
            yield from run.process(keys, rows)
        yield from run.rest()


class _Run:
    def __init__(self, program: WindowedProgram, task: PartitionTask) -> None:
        self._task = task
        self._schema: pa.Schema | None = None
        calls, kind = WindowCalls(program.functions, program.kind, task), program.kind
        self._state_class = state_class(task.spec.variables)
        self._prefetched = prefetched_variables(task.spec.variables)
        self._windows: FixedWindows | SessionWindows | SlidingWindows
        if isinstance(kind, Session):
            self._windows = SessionWindows(kind, calls)
        elif isinstance(kind, Sliding):
            self._windows = SlidingWindows(kind, calls, lambda: self._stored_rows)
        else:
            self._windows = FixedWindows(kind, calls)

    def with_times(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """With one more column, the event time in milliseconds."""
        event_time = self._task.spec.event_time
        assert event_time is not None, "windows are stretches of event time"
        for batch in batches:
            self._schema = batch.schema
            yield batch.append_column(TIME, event_times_ms(batch, event_time.column))

    def process(self, keys: list[Any], rows: list[list[Row]]) -> Iterator[pa.RecordBatch]:
        columns = (
            [keys] if len(self._task.spec.key_columns) == 1 else [list(part) for part in zip(*keys, strict=True)]
        )
        encoded = self._task.codec.encode_columns([*columns, [0] * len(keys)])
        prefixes = [each[:-START_BYTES] for each in encoded]
        due = self._take_due(prefixes[-1] + encode_start((1 << 63) - 1))
        found = {
            prefix: KeyWindows(key, prefix, its_rows, due.pop(prefix, {}), self._make_state)
            for key, prefix, its_rows in zip(keys, prefixes, rows, strict=True)
        }
        yield from self._run_keys([*found.values(), *self._only_due(due)])

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Keys with something due behind all rows."""
        yield from self._run_keys(self._only_due(self._take_due(None)))

    @cached_property
    def _due(self) -> DueWork:
        return self._task.due(timers=True)

    @cached_property
    def _rewriting(self) -> Rewriting | None:
        spec = self._task.spec
        return Rewriting(spec.variables, self._task.codec, self._task.session) if spec.rewrite else None

    def _rewritten(self, encoded: bytes) -> Iterable[tuple[bytes, bytes, bytes]]:
        return () if self._rewriting is None else self._rewriting.changes(encoded, self._task.context)

    @cached_property
    def _stored_rows(self) -> StoredRows:
        return StoredRows(from_arrow_schema(self._schema, prefer_timestamp_ntz=True))

    def _take_due(self, last: bytes | None) -> dict[bytes, dict[int, set[str]]]:
        """By key and window, the timers whose time has come; none if only values are to be removed or rewritten."""
        found: dict[bytes, dict[int, set[str]]] = defaultdict(dict)
        taken = self._due.take_through(last)
        if self._rewriting is not None:
            taken = sorted({*taken, *self._rewriting.take_through(last)[0]})
        for encoded in taken:
            prefix, number_ms = split_start(encoded)
            found[prefix][number_ms] = {name for name, _ in self._due.timers.get(encoded, ())}
        return found

    def _only_due(self, due: dict[bytes, dict[int, set[str]]]) -> list[KeyWindows]:
        found = []
        for prefix, its_due in due.items():
            parts = self._task.codec.decode(prefix + encode_start(0))[0][:-1]
            found.append(KeyWindows(parts[0] if len(parts) == 1 else parts, prefix, [], its_due, self._make_state))
        return found

    def _make_state(self, stored: dict[str, bytes], encoded: bytes) -> State:
        return self._state_class(stored, self._task.context, encoded)

    def _run_keys(self, keys: list[KeyWindows]) -> Iterator[pa.RecordBatch]:
        keys.sort(key=lambda each: each.prefix)
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[start : start + _KEYS_AT_ONCE]
            if isinstance(self._windows, FixedWindows):
                self._windows.load(some, self._read_some)
            else:
                self._windows.load(some, self._read_all)
            produced: list[Any] = []
            for its in some:
                try:
                    produced.extend(self._windows.process(its))
                    for _, at in sorted(its.windows.items()):
                        expired, rewritten = self._due.expired.get(at.encoded, ()), self._rewritten(at.encoded)
                        at.stage(self._task, self._windows.note_name, expired, rewritten)
                except Exception as error:
                    raise failed(self._task, its.key, error) from error
            self._task.stage.send()
            if produced:
                yield self._task.output.to_arrow(produced)

    def _read_some(self, wanted: list[tuple[KeyWindows, list[int]]]) -> None:
        """These windows of each key."""
        pairs = [(its, number_ms) for its, numbers in wanted for number_ms in numbers]
        for start in range(0, len(pairs), _WINDOWS_AT_ONCE):
            some = pairs[start : start + _WINDOWS_AT_ONCE]
            encoded = [its.prefix + encode_start(number_ms) for its, number_ms in some]
            stored_of_all = self._task.session.get(encoded)
            entries = prefetch(self._task, self._prefetched, encoded, stored_of_all) if self._prefetched else {}
            for place, ((its, number_ms), stored) in enumerate(zip(some, stored_of_all, strict=True)):
                its.add_stored(number_ms, stored, entries.get(place, ()), None)

    def _read_all(self, keys: list[KeyWindows]) -> None:
        """All windows of these keys, with all that is in them."""
        ranges = [(DATA + its.prefix, next_prefix(DATA + its.prefix)) for its in keys]
        pages = self._task.session.scan_many(ranges, _PAGE)  # type: ignore[arg-type]
        for its, (_, end), page in zip(keys, ranges, pages, strict=True):
            records = page
            while len(page) == _PAGE:
                page = self._task.session.scan(page[-1][0] + b"\0", end, _PAGE)  # type: ignore[arg-type]
                records += page
            self._add_records(its, records)
            for number_ms in its.due:
                its.window(number_ms)

    def _add_records(self, its: KeyWindows, records: list[tuple[bytes, bytes]]) -> None:
        stored: dict[int, dict[str, bytes]] = defaultdict(dict)
        entries: dict[int, dict[str, list[tuple[bytes, bytes]]]] = defaultdict(lambda: defaultdict(list))
        end = len(DATA) + len(its.prefix) + START_BYTES
        for record_key, data in records:
            _, number_ms = split_start(record_key[len(DATA) : end])
            name, entry = split_suffix(record_key[end:])
            if entry is None:
                stored[number_ms][name] = data
            else:
                entries[number_ms][name].append((entry, data))
        for number_ms in sorted(chain(stored, entries.keys() - stored.keys())):
            found: list[Prefetched] = [(name, its_entries, True) for name, its_entries in entries[number_ms].items()]
            its.add_stored(number_ms, stored[number_ms], found, self._windows.note_name)
