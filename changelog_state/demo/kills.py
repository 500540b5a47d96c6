"""Three ways to die, each at an exact place: fault points hold or kill a process there, so no luck is involved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from changelog_state.demo.driver_process import DriverProcess
from changelog_state.demo.processes import agent_of, is_alive, kill_agent, remove_socket
from changelog_state.demo.settings import DemoFailedError, Places
from changelog_state.faults import arm

__all__ = ["KILLS", "Kill", "Killing", "Scene"]

_FIRES_WITHIN_SECONDS = 180.0


class Scene(Protocol):
    """What a kill needs of the running demo."""

    places: Places

    @property
    def driver(self) -> DriverProcess: ...

    def start_driver(self) -> None: ...

    def wait_until(self, condition: Callable[[], Any], what: str, timeout_seconds: float) -> None: ...


@dataclass(frozen=True)
class Kill:
    """One that happened."""

    what: str
    how: str
    """Where in its work it was; the signal is always SIGKILL."""
    at_seconds: float
    recovered_in_seconds: float


@dataclass(frozen=True)
class Killing:
    """One that can be done. ``strike`` returns the moment of death; ``revive`` is what is up to a supervisor."""

    what: str
    how: str
    strike: Callable[[Scene], float]
    revive: Callable[[Scene], None] | None = None


def _agent_in_commit(scene: Scene) -> float:
    """Its records are in an open Kafka transaction; who claims the partition next aborts that."""
    agent = _agent(scene)
    _fire(scene, "commit.in_transaction", "kill", "fired")
    moment = time.monotonic()
    scene.wait_until(lambda: not is_alive(agent["pid"]), "the agent's death", _FIRES_WITHIN_SECONDS)
    remove_socket(agent)
    return moment


def _agent_and_disk(scene: Scene) -> float:
    """Kafka has committed the batch, the local store has not; and then there is no local store.

    The agent is held at that place. The directory goes first, in one step: the next agent can start only when
    this one is dead, and then finds nothing.
    """
    agent = _agent(scene)
    held = _fire(scene, "commit.after_kafka_commit", "hold", "held")
    lost = scene.places.root / "lost-disk"
    scene.places.state_dir.rename(lost)
    moment = time.monotonic()
    kill_agent(agent)
    held.unlink()
    (lost / scene.places.agent_log.name).rename(scene.places.wiped_agent_log)
    remove_socket(agent)
    return moment


def _driver_in_batch(scene: Scene) -> float:
    """The state has the batch; Spark does not know yet, and will run it again."""
    held = _fire(scene, "driver.after_commit", "hold", "held")
    moment = time.monotonic()
    scene.driver.kill()
    held.unlink()
    return moment


def _fire(scene: Scene, point: str, action: str, sign: str) -> Path:
    """Arm a fault point, and wait for the file that says that somebody got there."""
    seen = scene.places.faults / f"{point}.{sign}"
    arm(scene.places.faults, point, action)
    scene.wait_until(seen.exists, f"a commit to reach {point}", _FIRES_WITHIN_SECONDS)
    return seen


def _agent(scene: Scene) -> dict[str, Any]:
    agent = agent_of(scene.places.state_dir)
    if agent is None:
        raise DemoFailedError(f"no agent serves {scene.places.state_dir}, though batches are being processed")
    return agent


KILLS = (
    Killing(
        what="agent",
        how="in the middle of a commit; its Kafka transaction was open",
        strike=_agent_in_commit,
    ),
    Killing(
        what="agent and disk",
        how="in the middle of a commit, between Kafka and the local store; all its files wiped",
        strike=_agent_and_disk,
    ),
    Killing(
        what="driver",
        how="in the middle of a batch; the state had it, Spark's checkpoint did not",
        strike=_driver_in_batch,
        revive=lambda scene: scene.start_driver(),
    ),
)
