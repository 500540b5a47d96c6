"""One cluster of containers for all tests here; they run in the order in which they are written."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

# "make test" needs no Docker: only tests/docker/run, with the images at hand, sets this.
collect_ignore_glob = [] if os.environ.get("CHANGELOG_STATE_TEST_DOCKER") else ["*.py"]

_NOTES = pytest.StashKey[list[str]]()
_PORTS = ("KAFKA_PORT", "SPARK_MASTER_UI_PORT", "SPARK_UI_PORT")


@pytest.fixture(scope="session")
def environment(request: pytest.FixtureRequest) -> Iterator[object]:
    from tests.docker.environment import Environment

    for name in _PORTS:
        os.environ[name] = str(_free_port())
    environment = Environment()
    request.config.stash[_NOTES] = environment.notes
    try:
        environment.start()
        yield environment
    finally:
        if request.session.testsfailed or request.session.shouldstop:
            print(environment.logs())
        environment.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for note in config.stash.get(_NOTES, []):
        terminalreporter.write_line(note)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
