"""A machine with a disk and an agent, as the agent's command starts it; it can be lost with both."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from changelog_state.agent.launcher import find_agent
from tests.support.polling import until

_ROOT = Path(__file__).parents[2]


class Node:
    def __init__(self, disk: Path, environment: Mapping[str, str] | None = None) -> None:
        self.disk = disk
        self.options: tuple[str, ...] = ()
        """Of the agent's command, behind ``--state-dir``."""
        self._environment = {**os.environ, **(environment or {})}
        self._agent: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.disk.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "changelog_state", "agent", "--state-dir", str(self.disk), *self.options]
        with open(self.log, "ab") as log:
            self._agent = subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=log, env=self._environment)
        until(lambda: self.answers or self._ended, "the agent answers", 60)

    @property
    def log(self) -> Path:
        return self.disk.with_suffix(".log")

    @property
    def answers(self) -> bool:
        client = find_agent(self.disk)
        if client is not None:
            client.close()
        return client is not None

    def describe(self) -> dict[str, Any]:
        """What the agent says about itself."""
        client = find_agent(self.disk)
        assert client is not None, f"no agent answers for {self.disk}"
        try:
            return client.hello()
        finally:
            client.close()

    @property
    def pid(self) -> int:
        assert self._agent is not None
        return self._agent.pid

    @property
    def _ended(self) -> bool:
        return self._agent is not None and self._agent.poll() is not None

    def wait(self) -> int:
        """Until the agent has ended, by whatever means."""
        assert self._agent is not None
        return self._agent.wait()

    def kill(self) -> None:
        if self._agent is not None:
            self._agent.kill()
            self._agent.wait()

    def stop(self) -> int:
        """As whoever runs the machine would; gives the exit code."""
        assert self._agent is not None
        self._agent.terminate()
        return self.wait()

    def freeze(self) -> None:
        """It does nothing, but its connections stay: what a dead network or a stopped machine looks like."""
        os.kill(self.pid, signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid}/task")
        until(
            lambda: all((t / "stat").read_text().rpartition(")")[2].split()[0] == "T" for t in tasks.iterdir()),
            "every thread of it has stopped",
        )

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def lose(self) -> None:
        """Agent and disk."""
        self.kill()
        shutil.rmtree(self.disk)

    def restore(self, *options: str) -> dict[str, Any]:
        """``python -m restore run`` into this node's directory."""
        command = [sys.executable, "-m", "restore", "run", "--json", "--state-dir", str(self.disk), *options]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


class Place:
    """The path under which the cluster knows its node, whichever machine that is now."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def now_is(self, node: Node) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.symlink_to(node.disk)
        fresh.replace(self.path)
