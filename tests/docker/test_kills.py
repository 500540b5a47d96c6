"""Containers die in the middle of a stream, and every purchase is in state and outputs exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docker.environment import Environment, wait_until

pytestmark = pytest.mark.timeout(420)


def test_up_means_ready(environment: Environment) -> None:
    status = environment.status()
    assert {agent["host"] for agent in status["agents"]} == {"worker-1", "worker-2"}
    assert all(agent["address"] == f"grpc+tls://{agent['host']}:9440" for agent in status["agents"])
    assert environment.last_batch() >= 0
    wait_until(lambda: every_partition_has_a_replica(environment.status()), 60, "a replica of every partition")


def test_another_token_is_refused(environment: Environment) -> None:
    command = ("changelog-state", "get", "user-00001", "total_cents")
    assert "total_cents = " in environment.text_of("application", *command)
    status, out, err = environment.run_in("application", *command, variables={"CHANGELOG_STATE_TOKEN": "wrong"})
    assert status != 0
    assert out == ""
    assert "set CHANGELOG_STATE_TOKEN" in err
    assert "Traceback" not in err


def test_a_worker_is_lost_with_its_disk_in_the_middle_of_a_commit(environment: Environment) -> None:
    """Its replicas on the other node take over; then a replacement gets its disk back by the restore command."""
    environment.wait_for_batches()
    environment.hold("worker-1", "commit.in_transaction")
    recovery = environment.recovery("a worker")
    environment.lose("worker-1", volume="worker-1")
    recovery.wait()
    status = environment.status()
    assert {agent["host"] for agent in status["agents"]} == {"worker-2"}
    assert {row["phase"] for row in status["partitions"]} == {"ACTIVE"}
    assert environment.check()["exactly_once"]

    restored = environment.compose("run", "--rm", "--no-deps", "-T", "worker-1", "changelog-restore", "run")
    environment.notes.append(f"restored into the new disk:\n{restored.strip()}")
    environment.compose("up", "-d", "--no-deps", "--no-build", "worker-1")
    environment.wait_healthy("worker-1")
    wait_until(lambda: every_partition_has_a_replica(environment.status()), 90, "replicas on the replacement")
    assert environment.check()["exactly_once"]


def test_kafka_is_killed_in_the_middle_of_a_commit(environment: Environment) -> None:
    environment.wait_for_batches()
    let_go = environment.hold("worker-2", "commit.before_kafka_commit")
    recovery = environment.recovery("Kafka")
    environment.kill("kafka")
    let_go()
    environment.container("kafka").start()
    recovery.wait()
    assert environment.check()["exactly_once"]


def test_the_driver_is_killed_in_the_middle_of_a_batch(environment: Environment) -> None:
    """The state has the batch, Spark's checkpoint has not: the next driver runs it again, and nothing changes."""
    environment.wait_for_batches()
    let_go = environment.hold("application", "driver.after_commit")
    recovery = environment.recovery("the driver")
    environment.kill("application")
    let_go()
    environment.container("application").start()
    recovery.wait()
    environment.wait_healthy("application")
    verdict = environment.check()
    assert verdict["exactly_once"]
    environment.notes.append(f"{verdict['purchases']:,} purchases in {verdict['batches']:,} batches, exactly once")


def every_partition_has_a_replica(status: dict[str, Any]) -> bool:
    owners = {agent["id"]: agent["host"] for agent in status["agents"]}
    return all(
        row["phase"] == "ACTIVE"
        and [replica["phase"] for replica in row["replicas"]] == ["FOLLOWING"]
        and row["replicas"][0]["host"] != owners[row["owner"]]
        for row in status["partitions"]
    )
