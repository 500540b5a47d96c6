"""What the demo is asked to do, and where it keeps its things."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from changelog_state.errors import ChangelogStateError

__all__ = ["APPLICATION", "INPUT_TOPIC", "STORE", "DemoFailedError", "DemoSettings", "Places"]

APPLICATION = "demo"
STORE = "totals"
INPUT_TOPIC = "purchases"


class DemoFailedError(ChangelogStateError):
    """The demo could not be carried through; this says nothing about the state."""


@dataclass(frozen=True)
class DemoSettings:
    """``events`` purchases spread over ``seconds``; both grow if the kills take longer."""

    seconds: float = 35.0
    events: int = 250_000
    users: int = 5_000
    partitions: int = 4
    keep: bool = False


@dataclass(frozen=True)
class Places:
    """One directory for everything, so that removing it leaves nothing behind."""

    root: Path

    def make(self) -> None:
        for path in (self.faults, self.outputs, self.scratch, self.run):
            path.mkdir(parents=True)

    @property
    def broker(self) -> Path:
        return self.root / "kafka"

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def faults(self) -> Path:
        return self.root / "faults"

    @property
    def scratch(self) -> Path:
        """Spark's and everyone's temporary files: a killed process removes none of its own."""
        return self.root / "tmp"

    @property
    def run(self) -> Path:
        """For the agents' sockets."""
        return self.root / "run"

    @property
    def driver_log(self) -> Path:
        return self.root / "driver.log"

    @property
    def agent_log(self) -> Path:
        return self.state_dir / "agent.log"

    @property
    def wiped_agent_log(self) -> Path:
        return self.root / "agent-before-wipe.log"

    @property
    def broker_log(self) -> Path:
        return self.broker / "kafka.log"

    def logs(self) -> list[Path]:
        """Those that exist, the one most likely to tell first."""
        return [
            path
            for path in (self.driver_log, self.agent_log, self.wiped_agent_log, self.broker_log)
            if path.exists() and path.stat().st_size
        ]
