"""The demo's end of the driver: start it, hear what it has done, kill it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from changelog_state.demo.settings import DemoFailedError, Places
from changelog_state.demo.stream import Job

__all__ = ["BatchDone", "Batches", "DriverProcess"]


@dataclass(frozen=True)
class BatchDone:
    batch: int
    purchases: int
    seconds: float
    at: float
    """``time.monotonic()``, which the processes of one machine share."""


class Batches:
    """What is done, over all drivers of a run. A batch that is repeated counts once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[int, BatchDone] = {}

    def add(self, done: BatchDone) -> None:
        with self._lock:
            self._done[done.batch] = done

    def all(self) -> list[BatchDone]:
        with self._lock:
            return list(self._done.values())

    def first_after(self, moment: float) -> BatchDone | None:
        return min((done for done in self.all() if done.at > moment), key=lambda done: done.at, default=None)

    def purchases(self) -> int:
        return sum(done.purchases for done in self.all())


class DriverProcess:
    """A driver in a process group of its own, together with Spark's JVM: Ctrl-C does not reach it, a kill does."""

    def __init__(self, job: Job, places: Places, batches: Batches) -> None:
        self._places = places
        self._batches = batches
        self._events: set[str] = set()
        self._error: str | None = None
        self._ending = False
        with open(places.driver_log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "changelog_state.demo.driver", job.to_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=places.scratch,
                env=_environment(places),
                start_new_session=True,
                text=True,
            )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name="driver-events", daemon=True)
        self._reader.start()

    def has_said(self, event: str) -> bool:
        return event in self._events

    def check(self) -> None:
        """Raise if it has ended though nobody asked it to."""
        if self._error is None and (self._ending or self._process.poll() is None):
            return
        self._reader.join(1.0)
        reason = self._error or f"exit status {self._process.poll()}"
        raise DemoFailedError(f"the driver ended unexpectedly ({reason}); its log tells more")

    def finish(self) -> None:
        """Ask it to process what is left and to stop."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("finish\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.check()

    def has_ended(self) -> bool:
        """Whether it is gone; after it has drained, that is as it should be."""
        self._ending = self.has_said("drained")
        self.check()
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL to Python and JVM: neither does anything from here on, though the JVM may take a while to go."""
        self._ending = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(1.0)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                said = json.loads(line)
                event = said.pop("event")
                if event == "batch":
                    self._batches.add(BatchDone(**said))
                elif event == "failed":
                    self._error = said["error"]
                self._events.add(event)


def _environment(places: Places) -> dict[str, str]:
    """The agent inherits it from the driver: fault points, and where sockets and temporary files go."""
    package_root = str(Path(__file__).resolve().parents[2])
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")])),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "CHANGELOG_STATE_FAULTS": str(places.faults),
        "TMPDIR": str(places.scratch),
        "XDG_RUNTIME_DIR": str(places.run),
    }
