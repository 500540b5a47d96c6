"""The process dies here: for each place, fresh and in replay, state and outputs are those of an undisturbed run."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import changelog_state as cs
from changelog_state.faults import arm
from tests.support.stream import Input, Job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

AGENT_DIES = [
    "stage.before_seal",
    "stage.after_seal",
    "commit.before_transaction",
    "commit.in_transaction",
    "commit.before_kafka_commit",
    "commit.after_kafka_commit",
    "store.between_chunks",
    "commit.after_local_write",
]
TASK_DIES = ["task.before_stage", "task.after_stage"]
DRIVER_DIES = ["driver.before_commit", "driver.commit_one", "driver.after_commit", "driver.before_return"]


def two_names(key: str, rows: list[dict[str, Any]], state: cs.State) -> Any:
    """Two values per key that must always agree; a deletion and a rewrite now and then."""
    total = state.get("total", default=0) + len(rows)
    assert state.get("twice", default=0) == 2 * (total - len(rows))
    state.set("total", total)
    state.set("twice", 2 * total)
    if total % 3 == 0:
        state.set("third", [total, None, {"key": key}])
    else:
        state.delete("third")
    yield {"user_id": key, "total": total}


@pytest.fixture
def users() -> list[str]:
    return [f"user-{random.Random(7 * n).randrange(60)}" for n in range(600)]


@pytest.fixture
def job(spark: Any, broker: Any, users: list[str], tmp_path: Path) -> Job:
    source = Input(broker.bootstrap_servers)
    source.send(users)
    return Job(spark, source, tmp_path / "checkpoint", function=two_names)


def run_until_done(job: Job, make_service: Callable[..., cs.StateService]) -> cs.StateService:
    """Start the query again, as a supervisor would, with a driver that remembers nothing."""
    for _ in range(4):
        service = make_service()
        try:
            job.run(service)
        except PySparkException:
            continue
        return service
    raise AssertionError("the query did not get through")


def fail_in_batch_one(job: Job) -> None:
    """Make the first execution of batch 1 end after its commit, so that its next one is a replay."""
    failed: list[int] = []

    def fail(batch: int) -> None:
        if batch == 1 and not failed:
            failed.append(batch)
            raise RuntimeError("the sink failed")

    job.after_sink = fail


@pytest.mark.parametrize("replay", [False, True], ids=["fresh", "replay"])
@pytest.mark.parametrize("point", AGENT_DIES)
def test_agent_is_killed(
    point: str, replay: bool, job: Job, make_service: Any, faults: Path, users: list[str]
) -> None:
    small_chunks = point == "store.between_chunks"

    def arm_it(batch: int) -> None:
        already = len(job.outputs.get(1, [])) + bool((faults / "driver.commit_one.fired").exists())
        if batch != 1 or (faults / f"{point}.fired").exists():
            return
        if replay and not already:
            arm(faults, "driver.commit_one", "raise 3")  # some owners have committed, others not
        else:
            arm(faults, point, "kill")

    job.before_apply = arm_it
    if small_chunks:
        job.function = many_names
    service = run_until_done(job, make_service)
    assert (faults / f"{point}.fired").exists(), "the fault point was not reached"
    assert not replay or (faults / "driver.commit_one.fired").exists()
    job.check(service, users)


def many_names(key: str, rows: list[dict[str, Any]], state: cs.State) -> Any:
    """So many values that a commit is written in several parts."""
    total = state.get("total", default=0) + len(rows)
    for number in range(500):
        assert state.get(f"n{number}", default=0) == total - len(rows)
        state.set(f"n{number}", total)
    state.set("total", total)
    yield {"user_id": key, "total": total}


@pytest.mark.parametrize("replay", [False, True], ids=["fresh", "replay"])
@pytest.mark.parametrize("point", [*TASK_DIES, *DRIVER_DIES])
def test_task_or_driver_dies(
    point: str, replay: bool, job: Job, make_service: Any, faults: Path, users: list[str]
) -> None:
    action = "kill" if point in TASK_DIES else "raise"
    if replay:
        fail_in_batch_one(job)

    def arm_it(batch: int) -> None:
        if batch == 1 and len(job.outputs.get(1, [])) == replay and not (faults / f"{point}.fired").exists():
            arm(faults, point, f"{action} 3" if point == "driver.commit_one" else action)

    job.before_apply = arm_it
    service = run_until_done(job, make_service)
    assert (faults / f"{point}.fired").exists(), "the fault point was not reached"
    job.check(service, users)


def test_after_the_sink_before_the_commit_log(job: Job, make_service: Any, users: list[str]) -> None:
    fail_in_batch_one(job)
    service = run_until_done(job, make_service)
    assert len(job.outputs[1]) == 2
    job.check(service, users)
