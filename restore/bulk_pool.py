"""Worker processes for bulk restores, shared by all partitions of a process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from changelog_state.errors import ChangelogStateError, error_named
from changelog_state.store.rocksdb import RocksStore

__all__ = ["BulkPool", "Event", "stretches_per_store"]

_LEAST_WORKER_MB = 128
_MEBIBYTE = 1024 * 1024
Event = dict[str, Any]


class _Worker:
    """One process. A job is given to it, its events are read until the job is over."""

    def __init__(self) -> None:
        self._stopped = False
        root = str(Path(__file__).resolve().parents[1])
        try:
            self._process = subprocess.Popen(
                # -P: whatever happens to lie in the working directory is none of its modules.
                [sys.executable, "-P", "-m", "restore.bulk_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])},
                start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers
            )
        except OSError as error:
            raise ChangelogStateError(
                f"a restore worker cannot be started ({error}); check the limits on memory and processes"
            ) from error

    def run(self, job: dict[str, Any], on_event: Callable[[Event], None]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # that it is gone shows below
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            event: Event = json.loads(line)
            if event["event"] == "done":
                return
            if event["event"] == "failed":
                raise error_named(event["class"], event["message"])
            on_event(event)
        raise ChangelogStateError(
            f"a restore worker (process {self._process.pid}) ended in the middle of its work, with code "
            f"{self._process.wait()}; if the machine is short of memory, lower restore_memory_mb. "
            "What is restored stays: a retry goes on from there"
        )

    @property
    def is_usable(self) -> bool:
        return not self._stopped and self._process.poll() is None

    def stop(self) -> None:
        """From any thread: whoever waits for its events then sees their end."""
        self._stopped = True
        self._process.kill()

    def dispose(self) -> None:
        self.stop()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def stretches_per_store(stores: int, workers: int) -> int:
    """One each if the workers then have equal loads, or many; else enough that none is idle for long at the end."""
    if stores <= 1:
        return workers
    if stores % workers == 0 or stores >= 2 * workers:
        return 1
    return -(-2 * workers // stores)


class BulkPool:
    """At most as many workers as there are cores, and as the memory allows; started when needed."""

    def __init__(self, memory_mb: int = 512, processes: int | None = None) -> None:
        self._cores = processes or len(os.sched_getaffinity(0))
        self._memory_mb = memory_mb
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, threading.Event] = {}
        self._loading: list[RocksStore] = []
        self._interested = 0
        self._changed = threading.Condition()
        self._closed = False

    def __enter__(self) -> BulkPool:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        return max(1, min(self._cores, self._memory_mb // _LEAST_WORKER_MB))

    @property
    def worker_bytes(self) -> int:
        return self._memory_mb * _MEBIBYTE // self.size

    def allow(self, memory_mb: int) -> None:
        """What all workers together may take from now on."""
        with self._changed:
            self._memory_mb = memory_mb
            self._changed.notify_all()

    def run(self, job: dict[str, Any], on_event: Callable[[Event], None], cancelled: threading.Event) -> None:
        """Have a job done; waits for a free worker."""
        with self._worker(cancelled) as worker:
            worker.run({**job, "memory_bytes": self.worker_bytes}, on_event)

    @contextlib.contextmanager
    def interest(self, store: RocksStore) -> Iterator[None]:
        """As long as a store has a long way to go.

        Workers are started at once, as that takes a while, and end when no restore is under way any more. Then the
        ingested files are merged too: until then the processors have something better to do.
        """
        with self._changed:
            self._interested += 1
            self._loading.append(store)
        try:
            store.expect_many_files(True)
            with self._changed:
                while not self._closed and len(self._idle) + len(self._busy) < self.size:
                    self._idle.append(_Worker())
            yield
        finally:
            with self._changed:
                self._interested -= 1
                while not self._interested and self._loading:
                    self._loading.pop().expect_many_files(False)
                while not self._interested and self._idle:
                    self._idle.pop().dispose()

    def share(self) -> int:
        """Into how many stretches one store's way should be cut, so that all workers have something to do."""
        return stretches_per_store(self._interested, self.size)

    def cancel(self, cancelled: threading.Event) -> None:
        """End all jobs that were given with this event."""
        with self._changed:
            cancelled.set()
            for worker, event in self._busy.items():
                if event is cancelled:
                    worker.stop()
            self._changed.notify_all()

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        with self._changed:
            self._closed = True
            for worker in self._busy:
                worker.stop()
            while self._idle:
                self._idle.pop().dispose()
            self._changed.notify_all()

    @contextlib.contextmanager
    def _worker(self, cancelled: threading.Event) -> Iterator[_Worker]:
        """A worker that failed, or was left in the middle of its job, is not used again."""
        with self._changed:
            while not self._closed and not cancelled.is_set() and len(self._busy) >= self.size:
                self._changed.wait()
            if self._closed or cancelled.is_set():
                raise ChangelogStateError("the restore was cancelled")
            while self._idle and not self._idle[-1].is_usable:
                self._idle.pop().dispose()
            worker = self._idle.pop() if self._idle else _Worker()
            self._busy[worker] = cancelled
        try:
            yield worker
        except BaseException:
            worker.stop()
            raise
        finally:
            with self._changed:
                del self._busy[worker]
                if worker.is_usable and not self._closed:
                    self._idle.append(worker)
                else:
                    worker.dispose()
                self._changed.notify_all()
