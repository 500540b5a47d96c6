"""A job on a Spark cluster of several workers: where its tasks run does not matter to the state."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from changelog_state.broker import EmbeddedBroker
from tests.support.cluster import Cluster
from tests.support.node import Node
from tests.support.polling import until
from tests.support.stream import Input
from tests.support.stream_process import StreamProcess

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

USERS = [f"user-{random.Random(7 * n).randrange(60)}" for n in range(600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Node]:
    """One agent for the whole cluster, which all workers reach by its unix socket."""
    node = Node(tmp_path / "state")
    node.start()
    yield node
    node.kill()


@pytest.fixture
def source(broker: EmbeddedBroker) -> Input:
    found = Input(broker.bootstrap_servers)
    found.send(USERS)
    return found


def test_executors_and_the_driver_are_killed(
    cluster: Cluster, shared: Node, source: Input, make_service: Any, tmp_path: Path
) -> None:
    service = make_service(state_dir=shared.disk, agents="external")
    stream = StreamProcess(
        tmp_path / "stream",
        source,
        service._settings.as_given(),
        spark=cluster.spark_settings(),
        function="count_here",
        rows_per_batch=50,
    )
    stream.start()
    try:
        until(lambda: len(stream.executions()) > 1, "two batches are done", 120)
        assert [len(node.kill_executors()) for node in cluster.nodes] == [1, 1]
        done = len(stream.executions())
        until(lambda: len(stream.executions()) > done + 1, "new executors go on", 120)
    finally:
        stream.kill()
    for node in cluster.nodes:
        until(lambda node=node: not node.executors(), "executors end with their application")
    stream.run()
    stream.check(service, USERS)
    nodes = {values["node"] for _, values in service.scan()}
    assert nodes == {str(node.disk) for node in cluster.nodes}, "both workers have taken part"
