"""For the tests of whoever uses this library: ``StateTester``, and a pytest plugin with a real Kafka and services.

pytest finds the plugin by its entry point in every environment that has this library, also for projects and runs that
do not use it. So nothing is imported here that is not needed by all of them, and everything else when it is used.

- ``StateTester``: a function over batches of rows, in memory.
- ``changelog_state_broker``: has ``bootstrap_servers``; one for the whole run.
- ``changelog_state_service``: makes services, with a fresh application per test.
- ``changelog_state_dir``: where these keep their state.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from changelog_state.service import StateService
    from changelog_state.testing.tester import StateTester

__all__ = [
    "Broker",
    "MakeService",
    "StateTester",
    "changelog_state_broker",
    "changelog_state_dir",
    "changelog_state_service",
]

_OPTION = "--changelog-state-broker"
_INI = "changelog_state_broker"
_VARIABLE = "CHANGELOG_STATE_TEST_BROKER"
_KINDS = ("embedded", "docker")


def __getattr__(name: str) -> Any:
    if name != "StateTester":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from changelog_state.testing.tester import StateTester

    return StateTester


class Broker(Protocol):
    """What every kind of broker has; the embedded one can also be stopped, killed and started again."""

    @property
    def bootstrap_servers(self) -> str: ...


class MakeService(Protocol):
    def __call__(self, store: str = "state", partitions: int = 4, **settings: Any) -> StateService:
        """A service with these settings of ``StateService``; all are optional."""


def pytest_addoption(parser: pytest.Parser) -> None:
    what = "Kafka of the fixture changelog_state_broker: embedded (default), or docker for a container"
    parser.getgroup("changelog-state").addoption(
        _OPTION, choices=_KINDS, default=None, help=f"{what}. Also ${_VARIABLE}, and {_INI} in the ini file."
    )
    parser.addini(_INI, what, default="")


@pytest.fixture(scope="session")
def changelog_state_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A real Kafka with one node, started when first asked for. ``bootstrap_servers`` says where it is."""
    if _kind_of_broker(request.config) == "docker":
        from changelog_state.broker.container import container_broker

        with container_broker() as container:
            yield container
    else:
        from changelog_state.broker import embedded_broker

        with embedded_broker() as embedded:
            yield embedded


def _kind_of_broker(config: pytest.Config) -> str:
    """As the command line says; else the variable, else the ini file."""
    from changelog_state.errors import ConfigurationError

    kind = config.getoption(_OPTION) or os.environ.get(_VARIABLE) or config.getini(_INI) or _KINDS[0]
    if kind not in _KINDS:
        raise ConfigurationError(
            f"kind of broker is {kind!r} (${_VARIABLE} or {_INI}); use one of {', '.join(_KINDS)}"
        )
    return str(kind)


@pytest.fixture
def changelog_state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty state directory. Whatever agent serves it, or one below it, is stopped in the end."""
    from changelog_state.agent.launcher import find_agent, stop_agent

    directory = tmp_path_factory.mktemp("changelog-state")
    yield directory
    for place, _, files in os.walk(directory):  # which passes over what somebody takes away meanwhile
        client = find_agent(Path(place)) if "agent.json" in files else None
        if client is not None:
            stop_agent(client, Path(place))
            client.close()


@pytest.fixture
def changelog_state_service(changelog_state_broker: Broker, changelog_state_dir: Path) -> Iterator[MakeService]:
    """Makes services of one fresh application on one state directory, and closes them in the end.

    A second one for the same store is what a driver that was started again would have.
    """
    from changelog_state.service import StateService

    defaults: dict[str, Any] = {
        "application": f"test-{uuid.uuid4().hex[:10]}",
        "bootstrap_servers": changelog_state_broker.bootstrap_servers,
        "state_dir": changelog_state_dir,
    }
    with ExitStack() as made:

        def make(store: str = "state", partitions: int = 4, **settings: Any) -> StateService:
            return made.enter_context(StateService(store=store, partitions=partitions, **(defaults | settings)))

        yield make
