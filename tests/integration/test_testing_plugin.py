"""The pytest plugin as a user has it: a project of its own, run by a pytest of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from changelog_state.demo.processes import is_alive
from tests.support.polling import until

ROOT = Path(__file__).parents[2]
PLUGIN = ("-p", "changelog_state.testing")
"""By its name, as an environment that was installed earlier does not have the entry point."""

USERS_TESTS = """
import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from changelog_state.demo.processes import is_alive
from tests.support.polling import until

LEFT = Path(os.environ["LEFT_FOR_THE_OUTER_TEST"])


@pytest.fixture(scope="session")
def spark():
    from changelog_state.broker import ensure_java_home

    ensure_java_home()
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


def count(key, rows, state):
    total = state.get("total", default=0) + len(rows)
    state.set("total", total)
    yield {"user": key, "total": total}


def test_a_batch(spark, changelog_state_service, changelog_state_dir):
    service = changelog_state_service("totals", partitions=2)
    events = spark.createDataFrame([("alice",), ("bob",), ("alice",)], "user string")
    result = service.apply(events, 0, count, key="user", schema="user string, total long")
    assert {row.user: row.total for row in result.collect()} == {"alice": 2, "bob": 1}
    [agent] = service.status()["agents"]
    assert agent["state_dir"] == str(changelog_state_dir)
    LEFT.write_text(json.dumps({"agent": agent["pid"], "application": service.status()["application"]}))


def test_the_next_test_has_an_application_of_its_own(spark, changelog_state_service):
    before = json.loads(LEFT.read_text())
    service = changelog_state_service("totals", partitions=2)
    assert service.status()["application"] != before["application"]
    assert service.get("alice", "total") is None
    until(lambda: not is_alive(before["agent"]), "it was stopped")
    events = spark.createDataFrame([("alice",)], "user string")
    service.apply(events, 0, count, key="user", schema="user string, total long")
    [agent] = service.status()["agents"]
    LEFT.write_text(json.dumps({"agent": agent["pid"], "application": ""}))


def test_a_second_service_continues(changelog_state_service):
    first, second = changelog_state_service(), changelog_state_service()
    assert first.status()["application"] == second.status()["application"]
    assert first.get("alice", "total") == second.get("alice", "total")
"""

STRICT = """
[pytest]
addopts = --strict-markers --strict-config -W error
"""


def run_pytest(
    project: Path, *options: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CHANGELOG_STATE_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider", *options],
        cwd=project,
        env={**own, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.kafka
@pytest.mark.spark
def test_a_users_project(tmp_path: Path) -> None:
    (tmp_path / "test_pipeline.py").write_text(USERS_TESTS)
    left = tmp_path / "left.json"
    done = run_pytest(tmp_path, environment={"LEFT_FOR_THE_OUTER_TEST": str(left)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    until(lambda: not is_alive(json.loads(left.read_text())["agent"]), "the last test's agent was stopped")


def test_a_project_that_does_not_use_it_is_left_alone(tmp_path: Path) -> None:
    """Also one that takes every warning and every unknown setting for an error."""
    (tmp_path / "pytest.ini").write_text(STRICT)
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_nothing_heavy_was_imported():\n"
        "    heavy = {'pyspark', 'pyarrow', 'confluent_kafka', 'rocksdict', 'numpy', 'pandas', 'docker', 'restore'}\n"
        "    assert 'changelog_state.testing' in sys.modules\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


BROKER_TEST = "def test_broker(changelog_state_broker): assert changelog_state_broker.bootstrap_servers\n"
NO_DOCKER = {"DOCKER_HOST": "tcp://127.0.0.1:9"}


@pytest.mark.parametrize("way", ["option", "variable", "ini"])
def test_docker_is_asked_for_but_not_there(way: str, tmp_path: Path) -> None:
    (tmp_path / "test_broker.py").write_text(BROKER_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n" + ("changelog_state_broker = docker\n" if way == "ini" else ""))
    options = ["--changelog-state-broker=docker"] if way == "option" else []
    variable = {"CHANGELOG_STATE_TEST_BROKER": "docker"} if way == "variable" else {}
    done = run_pytest(tmp_path, *options, environment=NO_DOCKER | variable)
    assert done.returncode == 1
    assert "ConfigurationError: a broker in a container needs Docker, and none answers" in done.stdout


@pytest.mark.skipif("KAFKA_IMAGE" not in os.environ, reason="KAFKA_IMAGE names no image to use")
def test_a_broker_in_a_container(tmp_path: Path) -> None:
    (tmp_path / "test_broker.py").write_text(
        "def test_broker(changelog_state_broker, changelog_state_service):\n"
        "    assert changelog_state_broker.container_id\n"
        "    assert changelog_state_service().get('alice', 'total') is None\n"
    )
    ryuk = {"TESTCONTAINERS_RYUK_DISABLED": "true"}  # which may be impossible to pull
    done = run_pytest(tmp_path, "--changelog-state-broker=docker", environment=ryuk)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_kind_of_broker_that_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "test_broker.py").write_text(BROKER_TEST)
    done = run_pytest(tmp_path, environment={"CHANGELOG_STATE_TEST_BROKER": "podman"})
    assert done.returncode == 1
    assert "kind of broker is 'podman' ($CHANGELOG_STATE_TEST_BROKER or changelog_state_broker)" in done.stdout
    done = run_pytest(tmp_path, "--changelog-state-broker=podman")
    assert done.returncode == 4, "wrong use of the command line"
