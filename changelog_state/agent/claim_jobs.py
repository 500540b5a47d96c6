"""Claims under way: one at a time per partition, and none twice, however often a driver asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

__all__ = ["ClaimJobs"]


@dataclass
class _Job:
    epoch: int
    work: Callable[[], None]
    done: Future[None] = field(default_factory=Future)
    following: _Job | None = None
    """For a newer driver, which has come while this one runs."""


class ClaimJobs:
    """A few threads for many partitions: a claim that is held up takes one of them, not one per request."""

    def __init__(self, at_once: int) -> None:
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="claim")
        self._lock = threading.Lock()
        self._jobs: dict[Hashable, _Job] = {}
        self._stopping = False

    def is_pending(self, partition: Hashable, epoch: int | None = None) -> bool:
        """Whether a claim (for this epoch) is queued or running."""
        with self._lock:
            return self._find(partition, epoch) is not None

    def submit(self, partition: Hashable, epoch: int, work: Callable[[], None]) -> Future[None]:
        """The pending claim of this partition and epoch, which is begun if there is none."""
        with self._lock:
            pending = self._find(partition, epoch)
            if pending is not None:
                return pending.done
            job = _Job(epoch, work)
            running = self._jobs.get(partition)
            if running is None:
                self._jobs[partition] = job
                self._pool.submit(self._run, partition, job)
            else:
                if running.following is not None:
                    running.following.done.cancel()
                running.following = job
            return job.done

    def stop(self) -> None:
        """What is running goes on; nothing else is begun."""
        with self._lock:
            self._stopping = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        self._pool.shutdown(wait=True)

    def _find(self, partition: Hashable, epoch: int | None) -> _Job | None:
        job = self._jobs.get(partition)
        while job is not None and epoch is not None and job.epoch != epoch:
            job = job.following
        return job

    def _run(self, partition: Hashable, job: _Job) -> None:
        failure: BaseException | None = None
        try:
            job.work()
        except BaseException as error:  # whoever waits for it gets it
            failure = error
        with self._lock:
            following = None if self._stopping else job.following
            if following is None:
                del self._jobs[partition]
            else:
                self._jobs[partition] = following
        if failure is None:
            job.done.set_result(None)
        else:
            job.done.set_exception(failure)
        if following is not None:
            self._run(partition, following)
