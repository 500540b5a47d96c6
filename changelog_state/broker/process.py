"""One run of Kafka under its supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from changelog_state.broker import supervisor

__all__ = ["SupervisedProcess"]

_STOP_GRACE_SECONDS = 20.0


class SupervisedProcess:
    """A command that ends when this process does, even if this process is killed."""

    def __init__(
        self, command: list[str], *, directory: Path, log_path: Path, lock_fd: int, remove: Path | None
    ) -> None:
        specification = {
            "command": command,
            "directory": str(directory),
            "owner_pid": os.getpid(),
            "grace_seconds": _STOP_GRACE_SECONDS,
            "remove": str(remove) if remove else None,
        }
        with open(log_path, "ab") as output:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(supervisor.__file__), json.dumps(specification)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                # A Ctrl-C in the terminal must reach the owner only, which then stops Kafka in order.
                start_new_session=True,
                pass_fds=[lock_fd],
            )
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._stdin, self._stdout = self._supervisor.stdin, self._supervisor.stdout
        self.pid = int(self._stdout.readline() or -1)

    @property
    def is_running(self) -> bool:
        return self._supervisor.poll() is None

    def stop(self) -> int:
        """Stop the command in order and give its exit status."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(b"stop\n")
        return self.wait()

    def kill(self) -> int:
        # The supervisor reaps the command, so as long as it runs the pid is not somebody else's.
        if self.is_running and self.pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Wait for the supervisor, which ends after the command and with its exit status."""
        status = self._supervisor.wait()
        self._stdin.close()
        self._stdout.close()
        return status
