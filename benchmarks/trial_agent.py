"""An agent in a process of its own that plays a node: advertised on loopback, with a disk of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from benchmarks.child import ROOT
from changelog_state.agent.client import AgentClient
from changelog_state.agent.launcher import find_agent
from changelog_state.config import StoreConfig

__all__ = ["TrialAgent"]

_START_SECONDS = 60.0
_SHOWN_CHARACTERS = 2_000


class TrialAgent:
    """Runs inside ``with``; afterwards it is gone, and its disk with it."""

    def __init__(self, state_dir: Path, config: StoreConfig) -> None:
        self._state_dir = state_dir
        self._command = [sys.executable, "-m", "changelog_state", "agent", "--state-dir", str(state_dir)]
        self._command += ["--advertise", "127.0.0.1:0", "--application", config.application]
        self._command += ["--bootstrap-servers", config.bootstrap_servers]

    def __enter__(self) -> TrialAgent:
        self._state_dir.mkdir(parents=True)
        log = self._state_dir / "agent.log"
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        deadline = time.monotonic() + _START_SECONDS
        while (local := find_agent(self._state_dir)) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(
                    f"the agent does not answer; its log ends:\n{log.read_text()[-_SHOWN_CHARACTERS:]}"
                )
            time.sleep(0.05)
        # Over TCP, as from another machine.
        self.client = AgentClient(local.hello()["address"])
        local.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self._state_dir, ignore_errors=True)

    def kill(self) -> None:
        """As kill -9 does, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
