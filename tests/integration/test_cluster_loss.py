"""A streaming query on a cluster with an agent on each worker: agents, workers, disks and drivers are lost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from changelog_state.broker import EmbeddedBroker
from changelog_state.faults import arm
from tests.support.cluster import Cluster, ClusterNode
from tests.support.polling import until
from tests.support.stream import Input
from tests.support.stream_process import StreamProcess

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

USERS = [f"user-{random.Random(13 * n).randrange(80)}" for n in range(900)]
SECONDS = 180.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def source(broker: EmbeddedBroker) -> Input:
    found = Input(broker.bootstrap_servers)
    found.send(USERS)
    return found


@pytest.fixture
def make_stream(cluster: Cluster, source: Input, make_service: Any, tmp_path: Path) -> Iterator[Any]:
    made: list[StreamProcess] = []

    def make(**settings: Any) -> tuple[StreamProcess, Any]:
        spark = {name: settings.pop(name) for name in list(settings) if name.startswith("spark.")}
        service = make_service(state_dir=None, **settings)
        made.append(
            StreamProcess(
                tmp_path / "stream",
                source,
                service._settings.as_given(),
                spark=cluster.spark_settings() | spark,
                environment={"CHANGELOG_STATE_DIR": str(tmp_path / "driver has no disk")},
                rows_per_batch=75,
            )
        )
        return made[-1], service

    yield make
    for stream in made:
        stream.kill()


def join(node: ClusterNode, application: str, broker: EmbeddedBroker) -> None:
    node.agent_joins(application, broker.bootstrap_servers)


def fired(node: ClusterNode, point: str) -> bool:
    return (node.faults / f"{point}.fired").exists()


def test_owners_are_killed_in_their_commits_and_replicas_go_on(
    cluster: Cluster, make_stream: Any, application: str, broker: EmbeddedBroker, faults: Path
) -> None:
    first, second = cluster.nodes
    for node in cluster.nodes:
        join(node, application, broker)
    stream, service = make_stream(agents="external", standby_replicas=1)
    arm(first.faults, "commit.in_transaction", "kill 5")
    # Well behind that, and with batches left: a stream that has ended would keep no replicas.
    arm(faults, "driver.before_commit", "hold 8")
    held = faults / "driver.before_commit.held"
    stream.start()
    until(held.exists, "an owner has died in its commit, and the other one goes on", SECONDS)
    assert fired(first, "commit.in_transaction")
    first.agent.wait()
    first.agent.start()
    replicas = lambda: [len(partition["replicas"]) for partition in service.status()["partitions"]]  # noqa: E731
    until(lambda: replicas() == [1, 1, 1, 1], "it is back, and every partition has its replica again", SECONDS)
    arm(second.faults, "commit.before_kafka_commit", "kill")
    held.unlink()
    stream.wait()
    assert fired(second, "commit.before_kafka_commit")
    stream.check(service, USERS)


def test_a_node_is_lost_and_replaced_by_the_restore_command(
    cluster: Cluster, make_stream: Any, application: str, broker: EmbeddedBroker
) -> None:
    """No replicas: executor, agent and disk go at once; the stream goes on, and a new machine is restored first."""
    _, second = cluster.nodes
    for node in cluster.nodes:
        join(node, application, broker)
    stream, service = make_stream(agents="external")
    stream.start()
    until(lambda: len(stream.executions()) > 1, "two batches are done", SECONDS)
    second.lose()
    third = cluster.add_node()
    restored = third.agent.restore(
        *("--application", application, "--store", "totals", "--bootstrap-servers", broker.bootstrap_servers)
    )
    assert len(restored["partitions"]) == 4
    join(third, application, broker)
    third_id = third.agent.describe()["id"]
    until(
        lambda: not stream.is_running or third_id in {p["owner"] for p in service.status()["partitions"]},
        "the new machine gets its share",
        SECONDS,
    )
    stream.wait()
    stream.check(service, USERS)


def test_agents_are_started_where_executors_are(cluster: Cluster, make_stream: Any) -> None:
    stream, service = make_stream(agents="auto")
    stream.run()
    stream.check(service, USERS)
    directories = {agent["state_dir"] for agent in service.status()["agents"]}
    assert directories == {str(node.disk) for node in cluster.nodes}


def test_a_second_driver_takes_over_from_one_that_is_alive(
    cluster: Cluster, make_stream: Any, application: str, broker: EmbeddedBroker, faults: Path
) -> None:
    """On one checkpoint, as when the first one was taken for dead; it was only slow, and goes on with its commit."""
    for node in cluster.nodes:
        join(node, application, broker)
    stream, service = make_stream(agents="external", standby_replicas=1, **{"spark.cores.max": "1"})
    arm(faults, "driver.before_commit", "hold 3")
    held = faults / "driver.before_commit.held"
    first = stream.start()
    until(held.exists, "it is about to commit its third batch", SECONDS)
    second = stream.start()
    until(lambda: len(stream.executions()) > 3, "the second one has done that batch, and another", SECONDS)
    held.unlink()
    assert first.wait(SECONDS) != 0, "it is refused: its epoch is over"
    if second.wait(SECONDS) != 0:
        stream.run()  # Spark itself may have seen that its checkpoint has two writers, and given up
    stream.check(service, USERS)
