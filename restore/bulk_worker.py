"""A stretch of the changelog as sorted files, built in a process of its own: ``python -m restore.bulk_worker``.

Jobs come in as JSON lines on standard input, events go out on standard output. A *part* is a file with the latest
value per key of a piece of the stretch, and the position behind that piece: whoever ingests it has both or neither.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocksdict import SstFileWriter

from changelog_state.changelog.entries import entries_of, size_of_records
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.codec.kinds import MARKER
from changelog_state.config import log_from_json
from changelog_state.errors import ChangelogStateError, StoreError
from changelog_state.faults import fault_point
from changelog_state.store.due_index import index_keys
from changelog_state.store.meta import META_KEY, StoreMeta
from changelog_state.store.rocksdb import RocksMemory

__all__ = ["build_parts"]

_MEBIBYTE = 1024 * 1024
_PROCESS_BYTES = 64 * _MEBIBYTE
"""What the process takes before it reads anything."""
_PART_BYTES = 40 * _MEBIBYTE
"""However much memory there is: sorting more at once is slower, as the processor's caches do not hold it."""
_RECORD_BYTES = 300
"""What a record takes here beyond its own bytes: two objects, an entry of a dict, one of a list."""


def main() -> None:
    # NOTE: every record is an object that Python's collector would look at, again and again, and none is in a
    # cycle: without the collector the reading is half as fast again.
    gc.disable()
    parent = os.getppid()
    # Whatever else is printed in this process is no event.
    events = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def emit(**event: Any) -> None:
        if os.getppid() != parent:
            sys.exit(1)  # nobody wants it any more
        print(json.dumps(event), file=events, flush=True)

    for line in sys.stdin:
        try:
            build_parts(json.loads(line), emit)
        except Exception as error:
            name = type(error).__name__ if isinstance(error, ChangelogStateError) else "ChangelogStateError"
            text = str(error) if isinstance(error, ChangelogStateError) else f"restore worker failed: {error!r}"
            emit(event="failed", **{"class": name, "message": text})
        else:
            emit(event="done")


def build_parts(job: dict[str, Any], emit: Callable[..., None]) -> None:
    """Read [start, end) of one partition; a part whenever the memory allowed for it is used, and at the end."""
    config = log_from_json(job["config"])
    meta: dict[str, Any] = job["meta"]
    start, end, memory = job["start"], job["end"], job["memory_bytes"]
    queue_bytes = max(2 * _MEBIBYTE, min(32 * _MEBIBYTE, memory // 4))
    part_bytes = max(4 * _MEBIBYTE, min(_PART_BYTES, memory - queue_bytes - _PROCESS_BYTES))
    options = RocksMemory(8, 8).options()
    entries: dict[bytes, bytes | None] = {}
    used, number, position = 0, 0, start
    marker_offset: int | None = None

    def finish_part(behind: int) -> None:
        nonlocal entries, used, number
        stored = StoreMeta(**meta, position=behind, marker_offset=marker_offset if entries.get(MARKER) else None)
        entries[META_KEY] = stored.encode()
        if config.keeps_images:
            entries |= dict.fromkeys(index_keys(entries.items()), b"")
        path = Path(job["directory"]) / f"{start:020d}-{number:06d}.sst"
        _write_file(options, path, entries)
        fault_point("bulk.part_written")
        emit(event="part", path=str(path), position=behind)
        entries, used, number = {}, 0, number + 1

    with ChangelogReader(
        config, config.changelog_topic, job["partition"], queue_mb=queue_bytes // _MEBIBYTE
    ) as reader:
        for messages in reader.stretches(start, end, part_bytes // 8):
            found = entries_of(config, messages)
            entries |= found
            if MARKER in found:
                marker_offset = next(one.offset() for one in reversed(messages) if one.key() == MARKER)
            size = size_of_records(messages)
            behind = messages[-1].offset() + 1
            emit(event="progress", offsets=behind - position, records=len(messages), bytes=size)
            position = behind
            used += size + _RECORD_BYTES * len(messages)
            if used >= part_bytes:
                finish_part(behind)
    emit(event="progress", offsets=end - position, records=0, bytes=0)
    finish_part(end)


def _write_file(options: Any, path: Path, entries: dict[bytes, bytes | None]) -> None:
    try:
        writer = SstFileWriter(options)
        writer.open(str(path))
        put, delete = writer.__setitem__, writer.__delitem__
        for key, value in sorted(entries.items()):
            if value is None:
                delete(key)
            else:
                put(key, value)
        writer.finish()
    except Exception as error:
        raise StoreError(
            f"a file of the restore could not be written: {path} ({error}); check the disk's space and permissions. "
            "What is restored stays: a retry goes on from there"
        ) from error


if __name__ == "__main__":
    main()
