"""A streaming query in a driver of its own, seen from outside: it is started, killed, started again and judged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import changelog_state as cs
from tests.support.stream import Input

_RUN_SECONDS = 240.0


class StreamProcess:
    """``spark``: the session's settings, those of a cluster for example. ``job``: what ``Job`` takes.

    ``function`` is the name of one in ``tests.support.stream``. ``environment``: on top of this process's own.
    """

    def __init__(
        self,
        directory: Path,
        source: Input,
        service: Mapping[str, Any],
        *,
        spark: Mapping[str, str] | None = None,
        function: str = "count",
        environment: Mapping[str, str] | None = None,
        **job: Any,
    ) -> None:
        self.log = directory / "driver.log"
        self._outputs = directory / "outputs"
        self._outputs.mkdir(parents=True)
        self._environment = {**os.environ, **(environment or {})}
        self._settings = {
            "bootstrap_servers": source.bootstrap_servers,
            "topic": source.topic,
            "checkpoint": str(directory / "checkpoint"),
            "outputs": str(self._outputs),
            "service": dict(service),
            "spark": dict(spark or {}),
            "function": function,
            "job": job,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.support.stream_driver", json.dumps(self._settings)]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )

    def run(self, seconds: float = _RUN_SECONDS) -> None:
        """Process everything that is there."""
        self.start()
        self.wait(seconds)

    def wait(self, seconds: float = _RUN_SECONDS) -> None:
        """Until everything that is there has been processed."""
        assert self._process is not None
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        ended = "ran too long" if status is None else f"ended with exit code {status}"
        assert status == 0, f"the driver {ended}; its log ends:\n{self.log.read_text()[-5000:]}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Python and its JVM at the same moment, as when their machine dies."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def executions(self) -> dict[int, list[dict[str, Any]]]:
        """By batch, each execution's input (``truth``) and ``output``, as far as they have got."""
        found: dict[int, list[dict[str, Any]]] = {}
        for file in sorted(self._outputs.glob("*.json")):
            found.setdefault(int(file.name[:4]), []).append(json.loads(file.read_text()))
        return found

    def check(self, service: cs.StateService, users: Iterable[str]) -> None:
        """State and every output of every batch are those of an undisturbed run over all users."""
        totals: Counter[str] = Counter()
        for batch, executions in sorted(self.executions().items()):
            truth = executions[0]["truth"]
            totals.update(truth)
            for execution in executions:
                expected = {"truth": truth, "output": {user: totals[user] for user in truth}}
                assert execution == expected, f"batch {batch}"
        assert totals == Counter(users)
        assert {key: values["total"] for key, values in service.scan()} == dict(totals)
