"""The environment of docker-compose.yml for a test: brought up, looked into, and robbed of its containers."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from docker.models.containers import Container
from testcontainers.compose import DockerCompose

ROOT = Path(__file__).parents[2]
OBSERVER = "worker-2"
"""Never killed, and has the shared directory: what is going on is looked at from there."""
_READY_SECONDS = 240
_LOG_LINES = 60
_PAUSE_SECONDS = 0.25


class Environment(DockerCompose):
    """With whichever compose command there is: ``docker compose`` (v2), or docker-compose (v1), which cannot wait."""

    def __init__(self) -> None:
        super().__init__(ROOT, compose_file_name=["docker-compose.yml", "tests/docker/faults.yml"], wait=_has_v2())
        self.project = os.environ["COMPOSE_PROJECT_NAME"]
        self.notes: list[str] = []

    @cached_property
    def compose_command_property(self) -> list[str]:
        command = ["docker", "compose"] if self.wait else ["docker-compose"]
        assert isinstance(self.compose_file_name, list)
        return [*command, *(part for file in self.compose_file_name for part in ("-f", file))]

    def start(self) -> None:
        super().start()
        for service in ("kafka", "spark-master", "worker-1", "worker-2", "application"):
            self.wait_healthy(service)

    def stop(self, down: bool = True) -> None:
        self.compose("down", "--volumes", "--timeout", "5")

    def compose(self, *arguments: str) -> str:
        done = self._run_command([*self.compose_command_property, *arguments])
        return done.stdout.decode()

    # -- containers ----------------------------------------------------------------------------------------

    def container(self, service: str) -> Container:
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        client = self._get_docker_client().client
        found: list[Container] = client.containers.list(all=True, filters={"label": labels})
        assert len(found) == 1, f"{len(found)} containers of {service}"
        return found[0]

    def kill(self, service: str) -> None:
        """SIGKILL to all of its processes, as if the machine were gone."""
        self.container(service).kill()

    def lose(self, service: str, volume: str) -> None:
        """Kill a node for good: its container and its disk."""
        container = self.container(service)
        container.kill()
        container.remove()
        self._get_docker_client().client.volumes.get(f"{self.project}_{volume}").remove()

    def wait_healthy(self, service: str) -> None:
        def healthy() -> bool:
            state = self.container(service).attrs["State"]
            assert state["Status"] in ("created", "running", "restarting"), f"{service}: {state}"
            return bool(state["Health"]["Status"] == "healthy")

        wait_until(healthy, _READY_SECONDS, f"{service} to be healthy")

    def run_in(self, service: str, *command: str, variables: dict[str, str] | None = None) -> tuple[int, str, str]:
        done = self.container(service).exec_run(list(command), environment=variables, demux=True)
        out, err = (part.decode() if part else "" for part in done.output)
        return done.exit_code, out, err

    def text_of(self, service: str, *command: str) -> str:
        status, out, err = self.run_in(service, *command)
        assert status == 0, f"{' '.join(command)} in {service}: exit code {status}\n{out}{err}"
        return out

    def logs(self) -> str:
        """The end of what each container has said."""
        labels = [f"com.docker.compose.project={self.project}"]
        containers = self._get_docker_client().client.containers.list(all=True, filters={"label": labels})
        return "\n".join(
            f"==== {container.name} ({container.status})\n{container.logs(tail=_LOG_LINES).decode(errors='replace')}"
            for container in containers
        )

    # -- the stream ----------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.text_of(OBSERVER, "changelog-state", "status", "--json"))
        return document

    def last_batch(self) -> int:
        """The newest batch that Spark has in its commit log."""
        return max(
            int(name) for name in self.text_of(OBSERVER, "ls", "/data/checkpoint/commits").split() if name.isdigit()
        )

    def wait_for_batches(self, count: int = 2) -> None:
        wanted = self.last_batch() + count
        wait_until(lambda: self.last_batch() >= wanted, 180, f"batch {wanted}")

    def hold(self, service: str, point: str) -> Callable[[], None]:
        """Hold a process of the service at a fault point; gives what lets it go."""
        directory = f"/data/faults/{service}"
        held = f"{directory}/{point}.held"
        arm = f"mkdir -p {directory} && echo -n hold >{directory}/.new && mv {directory}/.new {directory}/{point}"
        self.text_of(OBSERVER, "sh", "-c", arm)
        wait_until(lambda: self.run_in(OBSERVER, "test", "-e", held)[0] == 0, 60, f"{service} to get to {point}")
        return lambda: _void(self.text_of(OBSERVER, "rm", held))

    def recovery(self, what: str) -> Recovery:
        return Recovery(self, what)

    def check(self) -> dict[str, Any]:
        """Stop the purchases, let the stream finish, compare everything with the input topic, let them go on."""
        purchases = self.container("purchases")
        purchases.stop(timeout=20)
        verdict: dict[str, Any] = json.loads(
            self.text_of("application", "python", "-m", "changelog_state.demo.cluster.check", "--json")
        )
        purchases.start()
        return verdict


class Recovery:
    """From a kill to the end of the first batch after it."""

    def __init__(self, environment: Environment, what: str) -> None:
        self._environment = environment
        self._what = what
        self._batch = environment.last_batch()
        self._begun = time.monotonic()

    def wait(self) -> None:
        wait_until(
            lambda: self._environment.last_batch() > self._batch, 180, f"a batch after the loss of {self._what}"
        )
        seconds = time.monotonic() - self._begun
        self._environment.notes.append(f"{self._what}: the next batch was done {seconds:.1f} s after the kill")


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Looking costs a process in a container, so there is a pause between two looks."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(_PAUSE_SECONDS)
    return found


def _void(_: object) -> None:
    return None


def _has_v2() -> bool:
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
