"""A machine with a disk and an agent, as the agent's command starts it; it can be lost with both."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from changelog_state.agent.launcher import find_agent
from tests.support.polling import until

_ROOT = Path(__file__).parents[2]


class Node:
    def __init__(self, disk: Path) -> None:
        self.disk = disk
        self._agent: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.disk.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "changelog_state", "agent", "--state-dir", str(self.disk)]
        with open(self.disk.with_suffix(".log"), "ab") as log:
            self._agent = subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=log)
        until(lambda: self.answers or self._ended, "the agent answers", 60)

    @property
    def answers(self) -> bool:
        client = find_agent(self.disk)
        if client is not None:
            client.close()
        return client is not None

    @property
    def _ended(self) -> bool:
        return self._agent is not None and self._agent.poll() is not None

    def wait(self) -> None:
        """Until the agent has ended, by whatever means."""
        assert self._agent is not None
        self._agent.wait()

    def kill(self) -> None:
        if self._agent is not None:
            self._agent.kill()
            self._agent.wait()

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
