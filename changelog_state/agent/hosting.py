"""An agent from its start to its end: the directory, the doors, where others find it, and nothing left behind."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from changelog_state.agent.doors import DoorSettings, TcpDoor
from changelog_state.agent.presence import Presence
from changelog_state.agent.registry import AgentSettings, Registry
from changelog_state.agent.server import AgentServer
from changelog_state.changelog.registration import Registration
from changelog_state.config import ClusterConfig

__all__ = ["AGENT_FILE", "Membership", "run_agent"]

logger = logging.getLogger(__name__)

AGENT_FILE = "agent.json"
_SOCKET_PREFIX = "changelog-state-agent-"
_CALLS_SECONDS = 5.0
"""A commit under way holds its partition and is waited for in any case; this is for answers on their way."""


@dataclass(frozen=True)
class Membership:
    """For an agent that serves other machines: its door, and the application whose drivers are to find it."""

    door: DoorSettings
    cluster: ClusterConfig
    rack: str | None = None


def run_agent(
    settings: AgentSettings, *, exit_with_drivers: bool = False, membership: Membership | None = None
) -> None:
    """Serve until stopped by a signal, by request, or because no driver is left.

    1. Take the state directory; clear away what a killed predecessor has left.
    2. Open the doors: the unix socket, and with a membership the TCP one. Both lead to the same registry.
    3. Register, and take the predecessor's registration out if it had another address; write agent.json.
    4. Serve.
    5. In the opposite order: first out of the registration, last out of the directory.
    """
    stopping = threading.Event()
    doors = _Doors()
    with ExitStack() as ends:
        ends.enter_context(_signals_set(stopping))
        registry = Registry(settings)
        ends.callback(logger.info, "agent %s stopped", registry.agent_id)
        ends.callback(registry.close)
        agent_file = registry.state_dir / AGENT_FILE
        predecessor = _remove_leftovers(agent_file)
        socket_path = ends.enter_context(_socket_path())
        socket = f"grpc+unix://{socket_path}"
        presence = Presence(registry, socket, socket, registry.host, membership.rack if membership else None)
        ends.callback(doors.shut)
        server = doors.add(AgentServer(registry, socket, presence), stopping)
        os.chmod(socket_path, 0o600)
        if membership is not None:
            port = doors.add(_tcp_door(presence, membership.door), stopping).port
            registration = Registration(membership.cluster, membership.door.advertised(port), presence.describe)
            ends.callback(registration.withdraw)
            registration.announce(predecessor)
        _write_atomically(agent_file, json.dumps(presence.describe()))
        ends.callback(agent_file.unlink, missing_ok=True)
        if exit_with_drivers:
            threading.Thread(target=server.watch_drivers, name="watch-drivers", daemon=True).start()
        where = socket if membership is None else f"{presence.address} and {socket}"
        logger.info("agent %s serves %s at %s", registry.agent_id, registry.state_dir, where)
        stopping.wait()
    if doors.occupied:
        # NOTE: gRPC would keep the process until a task that has not even noticed ends its exchange.
        logging.shutdown()
        os._exit(0)


class _Doors:
    """All that lead to one registry."""

    def __init__(self) -> None:
        self._open: list[AgentServer] = []
        self.occupied = False
        """Whether somebody is still inside of one that was shut."""

    def add(self, door: AgentServer, stopping: threading.Event) -> AgentServer:
        door.on_stop = stopping.set
        self._open.append(door)
        return door

    def shut(self) -> None:
        """Nobody comes in any more; who is inside may finish, but not for ever."""
        threads = [threading.Thread(target=door.shutdown, name="shut", daemon=True) for door in self._open]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _CALLS_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self.occupied = any(thread.is_alive() for thread in threads)
        if self.occupied:
            logger.warning("calls are still under way after %.0f s; stopping without them", _CALLS_SECONDS)


def _tcp_door(presence: Presence, settings: DoorSettings) -> TcpDoor:
    """NOTE: a door serves from when it is made, so with a known port the presence is complete before that."""
    _say_where(presence, settings, settings.port)
    door = TcpDoor(presence, settings)
    _say_where(presence, settings, door.port)
    return door


def _say_where(presence: Presence, settings: DoorSettings, port: int) -> None:
    presence.address = f"{settings.scheme}://{settings.advertised(port)}"
    presence.host = settings.failure_domain(port)


@contextmanager
def _signals_set(stopping: threading.Event) -> Iterator[None]:
    """From the start on, so that a signal leaves nothing behind whenever it comes."""

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _remove_leftovers(agent_file: Path) -> str | None:
    """What a killed predecessor could not take away: its socket, in a directory of its own. Returns its id."""
    try:
        described = json.loads(agent_file.read_text())
        left = Path(described["socket"].removeprefix("grpc+unix://")).parent
        predecessor = str(described["id"])
    except (OSError, ValueError, KeyError):
        return None
    if left.name.startswith(_SOCKET_PREFIX):
        shutil.rmtree(left, ignore_errors=True)
    return predecessor


@contextmanager
def _socket_path() -> Iterator[Path]:
    """A short path (the kernel takes about 100 bytes) in a directory that only this user can enter."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    parent = base if base and os.access(base, os.W_OK) and len(base) < 60 else "/tmp"
    directory = Path(tempfile.mkdtemp(prefix=_SOCKET_PREFIX, dir=parent))
    try:
        yield directory / "agent.sock"
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _write_atomically(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(path)
