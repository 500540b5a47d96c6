"""A store, its agents and its drivers, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from changelog_state.broker import EmbeddedBroker
from changelog_state.config import StoreConfig
from tests.support.driver import AgentProcess, Driver, LocalAgent


@pytest.fixture
def config(broker: EmbeddedBroker, application: str) -> StoreConfig:
    return StoreConfig(application, "totals", broker.bootstrap_servers, 1)


@pytest.fixture
def make_agent(tmp_path: Path, faults: Path) -> Iterator[Callable[..., LocalAgent]]:
    made: list[LocalAgent] = []

    def make(name: str = "state") -> LocalAgent:
        made.append(LocalAgent(tmp_path / name))
        return made[-1]

    yield make
    for held in faults.glob("*.held"):
        held.unlink(missing_ok=True)
    for agent in made:
        agent.stop()


@pytest.fixture
def agent(make_agent: Callable[..., LocalAgent]) -> LocalAgent:
    return make_agent()


@pytest.fixture
def make_driver(config: StoreConfig) -> Iterator[Callable[..., Driver]]:
    made: list[Driver] = []

    def make(*agents: LocalAgent | AgentProcess, config: StoreConfig = config, **settings: Any) -> Driver:
        made.append(Driver(config, lambda: [agent.client for agent in agents], **settings))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


@pytest.fixture(scope="module")
def shared_process(fault_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """One agent for many tests: each has an application of its own, and starting one takes a second."""
    process = AgentProcess(tmp_path_factory.mktemp("agent") / "state")
    yield process
    process.kill()


@pytest.fixture
def process(shared_process: AgentProcess, faults: Path) -> AgentProcess:
    return shared_process


@pytest.fixture
def pair(broker: EmbeddedBroker, application: str) -> StoreConfig:
    return StoreConfig(application, "totals", broker.bootstrap_servers, 2)
