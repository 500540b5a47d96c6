"""A task's changes on their way to the owner, in chunks of bounded size and in ascending order of their keys."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.errors import ValueEncodingError
from changelog_state.state.collections import UNKNOWN, Previous
from changelog_state.task.reads import TaskSession

__all__ = ["Stage"]

_RECORDS = 5_000
_BYTES = 8 * 1024 * 1024


class Stage:
    def __init__(self, session: Callable[[], TaskSession], largest_record_bytes: int) -> None:
        self._session = session
        self._largest = largest_record_bytes
        self._later: list[tuple[bytes, bytes | None]] = []
        self._begin()

    def _begin(self) -> None:
        self._keys: list[bytes] = []
        self._values: list[bytes | None] = []
        self._previous: list[Previous] = []
        self._bytes = 0
        self._all_known = True

    def add(self, record_key: bytes, value: bytes | None, previous: Previous) -> None:
        """``previous``: what the record was; if that is not known, it is read, of many records at once."""
        self._keys.append(record_key)
        self._values.append(value)
        self._previous.append(previous)
        size = len(record_key) + (0 if value is None else len(value))
        if size > self._largest:
            raise _too_large(size, self._largest)
        if previous is UNKNOWN:
            self._all_known = False
        elif previous is not None:
            size += len(previous)
        self._bytes += size
        if self._bytes >= _BYTES or len(self._keys) >= _RECORDS:
            self.send()

    def add_columns(self, record_keys: pa.Array, values: pa.Array, previous: pa.Array) -> None:
        """Many records at once, behind all that were added before; null in ``values`` deletes."""
        self.send()
        sizes = pc.add(pc.binary_length(record_keys), pc.fill_null(pc.binary_length(values), 0))
        largest = pc.max(sizes).as_py() or 0
        if largest > self._largest:
            raise _too_large(largest, self._largest)
        total = record_keys.nbytes + values.nbytes + previous.nbytes
        step = max(1, min(_RECORDS, len(record_keys) * _BYTES // max(1, total)))
        for start in range(0, len(record_keys), step):
            part = [column.slice(start, step) for column in (record_keys, values, previous)]
            self._session().stage_columns(*part)

    def add_later(self, record_key: bytes, value: bytes | None) -> None:
        """A record whose key is behind all values', such as a timer's. Held here until the end."""
        self._later.append((record_key, value))

    def send(self) -> None:
        if not self._keys:
            return
        keys, values, previous = self._keys, self._values, self._previous
        if not self._all_known:
            previous = self._found(keys, previous)
            # What was written unseen may be what was there: that is no change.
            changed = [n for n, (value, before) in enumerate(zip(values, previous, strict=True)) if value != before]
            keys, values = [keys[n] for n in changed], [values[n] for n in changed]
            previous = [previous[n] for n in changed]
        if keys:
            self._session().stage(keys, values, previous)  # type: ignore[arg-type]
        self._begin()

    def finish(self) -> None:
        later, self._later = sorted(self._later, key=lambda record: record[0]), []
        for record_key, value in later:
            self.add(record_key, value, UNKNOWN)
        self.send()

    def _found(self, keys: list[bytes], previous: list[Previous]) -> list[Previous]:
        unknown = [number for number, before in enumerate(previous) if before is UNKNOWN]
        found = self._session().read([keys[number] for number in unknown])
        filled = list(previous)
        for number, value in zip(unknown, found, strict=True):
            filled[number] = value
        return filled


def _too_large(size: int, largest: int) -> ValueEncodingError:
    return ValueEncodingError(
        f"a value takes {size} bytes, the changelog takes records up to {largest}; store less under one name, or "
        "raise the topic's max.message.bytes and give it in topic="
    )
