"""The fast way into a store: stretches of the log as sorted files, built by several processes, ingested in order."""

from __future__ import annotations

import logging
import queue
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from changelog_state.config import LogSettings
from changelog_state.errors import ChangelogStateError, StoreError
from changelog_state.faults import fault_point
from changelog_state.store.meta import StoreMeta
from changelog_state.store.rocksdb import RocksStore
from changelog_state.store.state_store import StateStore
from restore.bulk_pool import BulkPool, Event

__all__ = ["BULK_OFFSETS", "bulk_restore", "is_long", "split"]

logger = logging.getLogger(__name__)

BULK_OFFSETS = 100_000
"""From here on it pays to have other processes do it."""
_MOST_OFFSETS = 2_000_000
"""Of one stretch: what a killed restore may have to read again, per process."""


def is_long(offsets: int) -> bool:
    """Whether a stretch is worth the bulk way."""
    return offsets >= BULK_OFFSETS


def split(start: int, end: int, wanted: int) -> list[tuple[int, int]]:
    """So many stretches of about equal length, oldest first; fewer or more if they were very short or long."""
    offsets = end - start
    count = max(1, min(wanted, offsets // BULK_OFFSETS), -(-offsets // _MOST_OFFSETS))
    borders = [start + offsets * number // count for number in range(count + 1)]
    return list(pairwise(borders))


def bulk_restore(
    pool: BulkPool,
    config: LogSettings,
    partition: int,
    state: StateStore,
    aside: Path,
    *,
    meta: StoreMeta,
    start: int,
    end: int,
    on_progress: Callable[[int, int, int], None],
) -> None:
    """Bring the store from ``start`` to ``end``, without before-images.

    1. Workers turn stretches of the log into parts: sorted files, each with the position behind it.
    2. Parts are ingested oldest first, as soon as all older ones are. Each brings data and position at once, so
       that a restore which is cut short goes on behind the last part.
    ``on_progress`` is given offsets, records and bytes as they are read, and nothing now and then while there is no
    news; if it raises, the workers are stopped.
    """
    assert isinstance(state.store, RocksStore)
    template = asdict(meta)
    for changing in ("position", "marker_offset"):
        del template[changing]
    cancelled = threading.Event()
    stretches = split(start, end, pool.share())
    inboxes: list[queue.SimpleQueue[Event]] = [queue.SimpleQueue() for _ in stretches]
    progress: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def build(number: int) -> None:
        lower, upper = stretches[number]
        job = {
            "config": config.to_json(),
            "partition": partition,
            "start": lower,
            "end": upper,
            "directory": str(place),
            "meta": template,
        }
        inbox = inboxes[number]
        try:
            pool.run(job, lambda event: (progress if event["event"] == "progress" else inbox).put(event), cancelled)
            inbox.put({"event": "done"})
        except BaseException as error:
            inbox.put({"event": "raised", "error": error})

    def report() -> None:
        while not progress.empty():
            event = progress.get()
            on_progress(event["offsets"], event["records"], event["bytes"])

    with (
        _directory(aside) as place,
        ThreadPoolExecutor(len(stretches), thread_name_prefix=f"bulk-{partition}") as builders,
    ):
        try:
            for number in range(len(stretches)):
                builders.submit(build, number)
            for inbox in inboxes:
                _ingest_parts(state, inbox, report, lambda: on_progress(0, 0, 0))
            report()
        except BaseException:
            pool.cancel(cancelled)
            raise


def _ingest_parts(
    state: StateStore, inbox: queue.SimpleQueue[Event], report: Callable[[], None], idle: Callable[[], None]
) -> None:
    store: Any = state.store
    while True:
        report()
        try:
            event = inbox.get(timeout=0.1)
        except queue.Empty:
            idle()
            continue
        if event["event"] == "done":
            return
        if event["event"] == "raised":
            raise event["error"]
        fault_point("bulk.before_ingest")
        store.ingest(Path(event["path"]))
        state.reload()
        if state.meta is None or state.meta.position != event["position"]:
            raise ChangelogStateError(f"an ingested part has not brought position {event['position']}: {state.meta}")
        fault_point("bulk.after_ingest")


@contextmanager
def _directory(path: Path) -> Iterator[Path]:
    """An empty directory, removed at the end. What a killed restore left there was never ingested.

    Its name is new: a worker whose parent was killed may still be about to write where that one told it to.
    """
    shutil.rmtree(path, ignore_errors=True)
    place = path / uuid.uuid4().hex
    try:
        place.mkdir(parents=True)
    except OSError as error:
        raise StoreError(
            f"there is no place for the restore's files: {path} ({error.strerror}); check the disk's space"
        ) from error
    try:
        yield place
    finally:
        shutil.rmtree(path, ignore_errors=True)
