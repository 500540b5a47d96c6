"""Processes that others started on the demo's behalf: its agent, and whoever a kill has left without a parent."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from changelog_state.agent.hosting import AGENT_FILE
from changelog_state.agent.launcher import find_agent
from changelog_state.errors import UnavailableError

__all__ = ["agent_of", "is_alive", "kill_agent", "kill_leftovers", "remove_socket", "stop_agent"]

_STOP_SECONDS = 10.0


def agent_of(state_dir: Path) -> dict[str, Any] | None:
    """The agent that last served this directory; it may be dead."""
    try:
        described: dict[str, Any] = json.loads((state_dir / AGENT_FILE).read_text())
    except (OSError, ValueError):
        return None
    return described


def kill_agent(described: dict[str, Any]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(described["pid"], signal.SIGKILL)
    _wait_gone(described["pid"], _STOP_SECONDS)


def stop_agent(state_dir: Path) -> None:
    """Stop the directory's agent in order, whoever started it; kill it if it does not."""
    described = agent_of(state_dir)
    client = find_agent(state_dir)
    if described is None or client is None:
        return
    with contextlib.suppress(UnavailableError):
        client.stop()
    client.close()
    if not _wait_gone(described["pid"], _STOP_SECONDS):
        kill_agent(described)
        remove_socket(described)


def remove_socket(described: dict[str, Any]) -> None:
    """What a killed agent leaves behind outside of its state directory."""
    _, _, path = described["socket"].partition("grpc+unix://")
    if path and Path(path).parent.name.startswith("changelog-state-"):
        shutil.rmtree(Path(path).parent, ignore_errors=True)


def kill_leftovers(faults: Path) -> list[int]:
    """SIGKILL to whoever has inherited this run's environment and is still there; returns whom it hit.

    An agent that was just being started is not in its file yet, and Spark's Python workers outlive a killed JVM for
    a moment; the directory's name is of this run only, so nobody else can be meant.
    """
    mark = f"CHANGELOG_STATE_FAULTS={faults}".encode()
    hit = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                hit.append(int(entry.name))
        except OSError:
            continue  # gone, or not ours to look at
    for pid in hit:
        _wait_gone(pid, _STOP_SECONDS)
    return hit


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that waits for its parent to take note of its death does not."""
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    except ChildProcessError:
        pass  # somebody else's child
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def _wait_gone(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
