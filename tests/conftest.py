"""What tests share: one real broker and one real Spark session per run, services that clean up after themselves."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

import changelog_state as cs
from changelog_state.agent.launcher import find_agent
from changelog_state.broker import EmbeddedBroker
from changelog_state.broker.jars import spark_connector_jars
from changelog_state.broker.java import ensure_java_home

if TYPE_CHECKING:
    from changelog_state.testing import MakeService

# How long an example takes says more about the machine than about the code.
settings.register_profile("without-deadline", deadline=None)
settings.load_profile("without-deadline")

# An environment that was installed before the plugin had its entry point does not know it.
pytest_plugins = ["changelog_state.testing"]

# Spark's workers import the functions of test modules by name.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable

ensure_java_home()


@pytest.fixture(scope="session")
def broker(changelog_state_broker: EmbeddedBroker) -> EmbeddedBroker:
    return changelog_state_broker


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
def changelog_state_dir(tmp_path: Path) -> Iterator[Path]:
    """In place of the plugin's: tests leave agents in all kinds of states, and elsewhere than here."""
    yield tmp_path / "state"
    for directory, _, files in os.walk(tmp_path):  # which passes over what Spark takes away meanwhile
        client = find_agent(Path(directory)) if "agent.json" in files else None
        if client is not None:
            pid = client.hello()["pid"]
            client.close()
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def make_service(
    changelog_state_service: MakeService, application: str, fault_root: Path
) -> Callable[..., cs.StateService]:
    """Services on one state directory, as a driver that is started again would make them."""

    def make(**settings: Any) -> cs.StateService:
        return changelog_state_service(**({"application": application, "store": "totals"} | settings))

    return make
