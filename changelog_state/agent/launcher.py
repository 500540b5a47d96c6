"""Finding the agent of a state directory, or starting one that outlives whoever started it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from changelog_state.agent.client import AgentClient
from changelog_state.agent.hosting import AGENT_FILE
from changelog_state.errors import AgentUnavailableError, ConfigurationError, StateDirectoryError
from changelog_state.store.directory import is_held

__all__ = ["WRONG_USE", "described_agent", "find_agent", "start_agent", "stop_agent"]

logger = logging.getLogger(__name__)

WRONG_USE = 2
"""The exit code of a command that was given something it cannot work with."""
_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_LOG_TAIL_LINES = 15
_SCRUBBED_PREFIXES = ("SPARK_", "PYSPARK_", "PYTHON_WORKER", "PYTHONHASHSEED", "_PYSPARK")


def described_agent(state_dir: Path) -> dict[str, Any] | None:
    """What the agent that serves this directory, or has served it last, has left about itself."""
    try:
        described: dict[str, Any] = json.loads((state_dir / AGENT_FILE).read_text())
    except (OSError, ValueError):
        return None
    return described if "socket" in described else None


def find_agent(state_dir: Path) -> AgentClient | None:
    """The agent that serves this directory, if one answers."""
    described = described_agent(state_dir)
    if described is None:
        return None
    client = AgentClient(described["socket"])
    try:
        client.hello()
    except AgentUnavailableError:
        client.close()
        return None
    return client


def start_agent(
    state_dir: Path, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> AgentClient:
    """Start an agent and wait until it answers. If another starts at the same time, that one is taken.

    Its own session, no standard input, nothing of Spark's environment: Spark signals its workers' process
    group when it shuts down, and the agent must outlive that. ``options`` are those of its command, for everybody
    to see; ``environment`` comes on top of this process's own.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        log = open(state_dir / "agent.log", "ab")  # noqa: SIM115 (handed to the process)
        starting = open(state_dir / "agent.starting", "w")  # noqa: SIM115
    except OSError as error:
        raise StateDirectoryError(
            f"state directory is not usable: {state_dir} ({error.strerror}); "
            "give another state_dir, or make it writable for this user"
        ) from error
    with log, starting:
        # Several executors of one machine want an agent at once: the second finds what the first has started.
        fcntl.flock(starting, fcntl.LOCK_EX)
        return find_agent(state_dir) or _start(state_dir, log, options, environment or {})


def _start(state_dir: Path, log: BinaryIO, options: Sequence[str], environment: Mapping[str, str]) -> AgentClient:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_SCRUBBED_PREFIXES)}
    package_root = str(Path(__file__).resolve().parents[2])
    inherited["PYTHONPATH"] = os.pathsep.join([package_root, *filter(None, sys.path)])
    command = [sys.executable, "-m", "changelog_state", "agent", "--state-dir", str(state_dir.absolute())]
    process = subprocess.Popen(
        [*command, *options, "--exit-with-drivers"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        env={**inherited, **environment},
        start_new_session=True,
    )
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        client = find_agent(state_dir)
        if client is not None:
            return client
        if process.poll() is not None and (client := find_agent(state_dir)) is None:
            if process.returncode == WRONG_USE:
                refusal = _tail(state_dir, 1).removeprefix("changelog-state: ")
                raise ConfigurationError(refusal) if options else StateDirectoryError(refusal)
            break
        time.sleep(0.02)
    raise AgentUnavailableError(
        f"no agent came up for {state_dir} within {_START_SECONDS:.0f} s; its log ends:\n{_tail(state_dir)}"
    )


def stop_agent(client: AgentClient, state_dir: Path) -> None:
    """Stop an agent and wait until it has let go of its directory, so that another one can have it at once."""
    client.stop()
    deadline = time.monotonic() + _STOP_SECONDS
    while is_held(state_dir):
        if time.monotonic() > deadline:
            logger.warning("the agent of %s is still stopping after %.0f s", state_dir, _STOP_SECONDS)
            return
        time.sleep(0.02)


def _tail(state_dir: Path, lines: int = _LOG_TAIL_LINES) -> str:
    return "\n".join((state_dir / "agent.log").read_text(errors="replace").splitlines()[-lines:])
