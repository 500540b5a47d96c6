"""Agents that are started on a cluster: one per worker, by a Spark job, and they outlive its executors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from changelog_state import spark_bridge
from changelog_state.broker import EmbeddedBroker
from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogStateError
from changelog_state.executor_agents import start_on_executors
from changelog_state.spark_bridge import Executor
from tests.support.cluster import Cluster
from tests.support.cluster_call import on_cluster
from tests.support.polling import until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

HARMLESS = {"metadata.max.age.ms": "123457"}
"""Stands for a password."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def config(broker: EmbeddedBroker, application: str) -> dict[str, Any]:
    return StoreConfig(application, "totals", broker.bootstrap_servers, 4, kafka=HARMLESS).to_json()


# -- in the driver -----------------------------------------------------------------------------------------


def start_twice(spark: SparkSession, config: dict[str, Any], state_dir: str | None) -> dict[str, Any]:
    first = start_on_executors(spark, StoreConfig.from_json(config), state_dir)
    return {
        "local": spark_bridge.is_local(spark),
        "executors": len(spark_bridge.executors(spark)),
        "first": first,
        "second": start_on_executors(spark, StoreConfig.from_json(config), state_dir),
    }


def start_refused(spark: SparkSession, config: dict[str, Any], state_dir: str | None, host: str) -> str:
    """As if Spark knew its executors by this name."""
    executors = spark_bridge.executors

    def renamed(spark: SparkSession) -> tuple[Executor, ...]:
        return tuple(Executor(executor.id, host) for executor in executors(spark))

    with mock.patch.object(spark_bridge, "executors", renamed):
        try:
            start_on_executors(spark, StoreConfig.from_json(config), state_dir)
        except ChangelogStateError as error:
            return f"{type(error).__name__}: {error}"
    return "not refused"


def where_tasks_run(spark: SparkSession, rounds: int) -> list[dict[str, str]]:
    """Per round, by executor: the node that its task was on."""
    spark_bridge.wake_executors(spark)
    found = []
    for _ in range(rounds):
        answers = spark_bridge.run_on_executors(spark, spark_bridge.executors(spark), node_of_task)
        found.append({executor.id: node for executor, node in answers.items()})
    return found


def node_of_task(executor: Executor) -> str:
    return os.environ["CHANGELOG_STATE_DIR"]


# -- tests -------------------------------------------------------------------------------------------------


def test_one_agent_per_worker(cluster: Cluster, config: dict[str, Any]) -> None:
    disks = {str(node.disk) for node in cluster.nodes}
    answer = on_cluster(cluster, start_twice, config, None)
    assert (answer["local"], answer["executors"]) == (False, 2)
    agents = {agent["state_dir"]: agent for agent in answer["first"]}
    assert set(agents) == disks
    assert answer["second"] == answer["first"], "they are found, not started again"
    for agent in agents.values():
        assert agent["address"].startswith("grpc+tcp://127.0.0.1:")
        command, environment = (Path(f"/proc/{agent['pid']}/{what}").read_text() for what in ("cmdline", "environ"))
        assert "123457" in environment
        assert "123457" not in command
    for node in cluster.nodes:
        until(lambda node=node: not node.executors(), "executors end with their application")
        assert node.agent.describe() == agents[str(node.disk)], "agents do not"
    again = on_cluster(cluster, start_twice, config, None)
    assert {agent["id"] for agent in again["first"]} == {agent["id"] for agent in answer["first"]}


def test_executors_that_share_a_directory_share_an_agent(
    cluster: Cluster, config: dict[str, Any], tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    answer = on_cluster(cluster, start_twice, config, str(shared))
    [agent] = answer["first"]
    assert agent["state_dir"] == str(shared)
    assert answer["second"] == [agent]


def test_a_machine_that_refuses(cluster: Cluster, config: dict[str, Any], tmp_path: Path) -> None:
    refusal = on_cluster(cluster, start_refused, config, None, "worker-7.example")
    assert refusal.startswith("ConfigurationError: no agent could be started on worker-7.example, by executor ")
    assert "needs TLS and a token" in refusal
    (tmp_path / "file").touch()
    refusal = on_cluster(cluster, start_refused, config, str(tmp_path / "file" / "state"), "127.0.0.1")
    assert refusal.startswith("StateDirectoryError: no agent could be started on 127.0.0.1, by executor ")


def test_every_executor_is_reached(cluster: Cluster) -> None:
    rounds = on_cluster(cluster, where_tasks_run, 5)
    assert set(rounds[0].values()) == {str(node.disk) for node in cluster.nodes}
    assert rounds == [rounds[0]] * 5
