"""What tests share: one real broker and one real Spark session per run, services that clean up after themselves."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import changelog_state as cs
from changelog_state.agent.launcher import find_agent
from changelog_state.broker import EmbeddedBroker, embedded_broker
from changelog_state.broker.jars import spark_connector_jars
from changelog_state.broker.java import ensure_java_home

# Spark's workers import the functions of test modules by name.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

ensure_java_home()


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded_broker() as running:
        yield running


@pytest.fixture(scope="session")
def spark(fault_root: Path) -> Iterator[object]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("changelog-state-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", ",".join(spark_connector_jars()))
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.memory", "2g")
        # Tests run many different plans once each: compiling them well takes longer than running them.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.streaming.stopTimeout", "60s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def fault_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where fault points are armed: set before Spark's workers and the agents start, so that all share it."""
    root = tmp_path_factory.mktemp("faults")
    os.environ["CHANGELOG_STATE_FAULTS"] = str(root)
    return root


@pytest.fixture
def faults(fault_root: Path) -> Iterator[Path]:
    """The armed points' directory, empty before and after."""
    _empty(fault_root)
    yield fault_root
    _empty(fault_root)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


@pytest.fixture
def application() -> str:
    """A name that no other test uses, so that topics never meet."""
    return f"test-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def make_service(
    broker: EmbeddedBroker, application: str, tmp_path: Path, fault_root: Path
) -> Iterator[Callable[..., cs.StateService]]:
    """Services on one state directory, as a driver that is started again would make them."""
    made: list[cs.StateService] = []

    def make(**settings: object) -> cs.StateService:
        defaults: dict[str, object] = {
            "application": application,
            "store": "totals",
            "bootstrap_servers": broker.bootstrap_servers,
            "partitions": 4,
            "state_dir": tmp_path / "state",
        }
        service = cs.StateService(**(defaults | settings))  # type: ignore[arg-type]
        made.append(service)
        return service

    yield make
    for service in made:
        service.close()
    for agent_file in tmp_path.rglob("agent.json"):
        client = find_agent(agent_file.parent)
        if client is not None:
            pid = client.hello()["pid"]
            client.close()
            os.kill(pid, signal.SIGKILL)
