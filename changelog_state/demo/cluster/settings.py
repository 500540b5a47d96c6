"""What the parts agree on: names and places, from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from changelog_state.demo.settings import INPUT_TOPIC
from changelog_state.demo.stream import Job
from changelog_state.errors import ConfigurationError
from changelog_state.service import StateService

__all__ = ["PARTITIONS", "ClusterSettings"]

PARTITIONS = 4


@dataclass(frozen=True)
class ClusterSettings:
    application: str
    store: str
    bootstrap_servers: str
    data: Path
    """A directory that all nodes share."""

    @classmethod
    def from_environment(cls) -> ClusterSettings:
        return cls(
            application=_variable("CHANGELOG_STATE_APPLICATION"),
            store=_variable("CHANGELOG_STATE_STORE"),
            bootstrap_servers=_variable("CHANGELOG_STATE_BOOTSTRAP_SERVERS"),
            data=Path("/data"),
        )

    def service(self) -> StateService:
        return StateService(
            application=self.application,
            store=self.store,
            bootstrap_servers=self.bootstrap_servers,
            partitions=PARTITIONS,
            standby_replicas=1,
            agents="external",
        )

    def job(self) -> Job:
        return Job(
            application=self.application,
            store=self.store,
            bootstrap_servers=self.bootstrap_servers,
            input_topic=INPUT_TOPIC,
            partitions=PARTITIONS,
            state_dir="",
            checkpoint=str(self.data / "checkpoint"),
            outputs=str(self.data / "outputs"),
            scratch="/tmp",
        )


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ConfigurationError(
            f"${name} is not set: docker-compose.yml does that, so run this in one of its containers"
        )
    return value
