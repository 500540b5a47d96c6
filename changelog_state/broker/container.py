"""Kafka in a container, set up as the embedded one is. Needs Docker and the package ``testcontainers``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from changelog_state.broker.ports import free_port
from changelog_state.broker.settings import HOST, server_properties
from changelog_state.broker.versions import KAFKA_VERSION
from changelog_state.errors import BrokerUnavailableError, ConfigurationError

__all__ = ["ContainerBroker", "container_broker"]

_IMAGE_VARIABLE = "KAFKA_IMAGE"
_OFFICIAL_IMAGE = f"apache/kafka:{KAFKA_VERSION}"
_PORT, _CONTROLLER_PORT = 9092, 9093
_LOG_TAIL_LINES = 15


@dataclass(frozen=True)
class ContainerBroker:
    bootstrap_servers: str
    image: str
    container_id: str


@contextmanager
def container_broker(image: str | None = None, *, start_timeout_seconds: float = 120.0) -> Iterator[ContainerBroker]:
    """A running Kafka for the length of a ``with`` block, in a container that is removed afterwards.

    ``image``: else ``$KAFKA_IMAGE``, else the official one; it must take Kafka's settings from variables
    ``KAFKA_…`` as that does.
    """
    image = image or os.environ.get(_IMAGE_VARIABLE) or _OFFICIAL_IMAGE
    container, docker_error = _container(image)
    # NOTE: not the container's own address, which nobody knows before it is there, and Kafka has to tell its clients.
    host = container.get_docker_client().host()
    here = host in ("localhost", HOST)
    port = free_port()
    bootstrap_servers = f"{HOST if here else host}:{port}"
    container.ports[f"{_PORT}/tcp"] = (HOST, port) if here else port
    for name, value in _settings(bootstrap_servers).items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    try:
        try:
            container.start()
        except docker_error as error:
            raise BrokerUnavailableError(
                f"no container of {image} could be started ({error}); pull or build that image, or name another "
                f"with {_IMAGE_VARIABLE}"
            ) from error
        _wait_until_it_answers(container, bootstrap_servers, image, start_timeout_seconds)
        yield ContainerBroker(bootstrap_servers, image, str(container.get_wrapped_container().id))
    finally:
        container.stop()


def _container(image: str) -> tuple[Any, type[Exception]]:
    try:
        from docker.errors import DockerException  # type: ignore[import-untyped]
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise ConfigurationError(
            f"a broker in a container needs the package testcontainers ({error}); pip install testcontainers, "
            "or use the embedded broker"
        ) from error
    try:
        container = DockerContainer(image)
        container.get_docker_client().client.ping()
    except DockerException as error:
        raise ConfigurationError(
            f"a broker in a container needs Docker, and none answers ({error}); start it, set DOCKER_HOST, "
            "or use the embedded broker"
        ) from error
    return container, DockerException


def _settings(bootstrap_servers: str) -> dict[str, str]:
    settings = server_properties(
        port=_PORT,
        controller_port=_CONTROLLER_PORT,
        log_dir=Path("unused"),
        overrides={
            "listeners": f"PLAINTEXT://0.0.0.0:{_PORT},CONTROLLER://{HOST}:{_CONTROLLER_PORT}",
            "advertised.listeners": f"PLAINTEXT://{bootstrap_servers}",
        },
    )
    del settings["log.dirs"]  # the image knows best
    return settings


def _wait_until_it_answers(container: Any, bootstrap_servers: str, image: str, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}).list_topics(timeout=2.0)
            return
        except KafkaException as error:
            wrapped = container.get_wrapped_container()
            wrapped.reload()
            ended = wrapped.status == "exited"
            if ended or time.monotonic() > deadline:
                what = "has ended" if ended else f"did not answer at {bootstrap_servers} in {timeout_seconds:g} s"
                tail = "\n".join(wrapped.logs().decode(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
                raise BrokerUnavailableError(f"the container of {image} {what}; its log ends:\n{tail}") from error
        time.sleep(0.2)
