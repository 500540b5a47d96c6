"""An agent for other machines, as its command starts it: on loopback, registered in the application's topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from changelog_state.agent.hosting import AGENT_FILE
from changelog_state.agent.launcher import find_agent
from changelog_state.agent.transport import TLS_CA, TLS_CERT, TLS_KEY, TOKEN
from changelog_state.config import ClusterConfig
from tests.support.polling import until

_ROOT = Path(__file__).parents[2]
_OURS = (TOKEN, TLS_CA, TLS_CERT, TLS_KEY)


def command(*words: str, seconds: float = 90, **environment: str) -> subprocess.CompletedProcess[str]:
    """``changelog-state …``, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "changelog_state", *words],
        cwd=_ROOT,
        env=clean_environment(environment),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def clean_environment(additions: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OURS} | additions


class ClusterAgent:
    def __init__(self, disk: Path, cluster: ClusterConfig, *options: str, **environment: str) -> None:
        self.disk = disk
        self._log = disk.with_suffix(".log")
        self._words = ["agent", "--state-dir", str(disk), "--application", cluster.application]
        self._words += ["--bootstrap-servers", cluster.bootstrap_servers, *options]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> ClusterAgent:
        self.disk.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "changelog_state", *self._words, *options]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command, cwd=_ROOT, env=clean_environment(self._environment), stdout=log, stderr=log
            )
        until(lambda: self._answers() or self._process.poll() is not None, "the agent answers", 90)  # type: ignore[union-attr]
        assert self.alive, self.log
        return self

    def _answers(self) -> bool:
        if self._process is None or self._file().get("pid") != self._process.pid:
            return False
        client = find_agent(self.disk)
        if client is not None:
            client.close()
        return client is not None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def described(self) -> dict[str, Any]:
        return self._file()

    @property
    def address(self) -> str:
        return str(self.described["address"])

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def log(self) -> str:
        return self._log.read_text()

    def terminate(self) -> int:
        """As a supervisor stops it; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(60)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _file(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.disk / AGENT_FILE).read_text())
        except OSError:
            return {}
        return found
