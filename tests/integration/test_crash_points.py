"""The process dies here: for each place, fresh and in replay, state and outputs are those of an undisturbed run."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import changelog_state as cs
from changelog_state.faults import arm, fault_point
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
USERS = [f"user-{random.Random(7 * n).randrange(60)}" for n in range(600)]
SINK = "test.after_sink"
Step = tuple[int, str, str]
"""A batch, what is armed when it begins, and what that does."""


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
def job(spark: Any, broker: Any, tmp_path: Path) -> Job:
    source = Input(broker.bootstrap_servers)
    source.send(USERS)
    return Job(spark, source, tmp_path / "checkpoint", function=two_names)


def run_until_done(job: Job, make_service: Callable[..., cs.StateService], faults: Path, steps: list[Step]) -> None:
    """Run the query, and again whenever it dies, as a supervisor would: with a driver that remembers nothing.

    Each time that a batch begins, the next step that is meant for it makes something die in it.
    """
    waiting = list(steps)

    def arm_next(batch: int) -> None:
        if waiting and waiting[0][0] == batch:
            _, point, action = waiting.pop(0)
            arm(faults, point, action)

    job.before_apply = arm_next
    job.after_sink = lambda batch: fault_point(SINK)
    for _ in range(len(steps) + 1):
        service = make_service()
        try:
            job.run(service)
        except PySparkException:
            continue
        break
    else:
        raise AssertionError("the query did not get through")
    not_reached = [point for _, point, _ in steps if (faults / point).exists()]
    assert (waiting, not_reached) == ([], []), "fault points were not reached"
    job.check(service, USERS)


@pytest.mark.parametrize("point", AGENT_DIES)
def test_agent_is_killed(point: str, job: Job, make_service: Any, faults: Path) -> None:
    """In a batch that is new, and in the replay of one that some owners have committed and others have not."""
    if point == "store.between_chunks":
        job.function = many_names
    steps = [(1, point, "kill"), (2, "driver.commit_one", "raise 3"), (2, point, "kill")]
    run_until_done(job, make_service, faults, steps)


def many_names(key: str, rows: list[dict[str, Any]], state: cs.State) -> Any:
    """So many values that a commit is written in several parts."""
    total = state.get("total", default=0) + len(rows)
    for number in range(500):
        assert state.get(f"n{number}", default=0) == total - len(rows)
        state.set(f"n{number}", total)
    state.set("total", total)
    yield {"user_id": key, "total": total}


@pytest.mark.parametrize("point", [*TASK_DIES, *DRIVER_DIES])
def test_task_or_driver_dies(point: str, job: Job, make_service: Any, faults: Path) -> None:
    """In a batch that is new, and in the replay of one that was committed as a whole."""
    action = "kill" if point in TASK_DIES else "raise 3" if point == "driver.commit_one" else "raise"
    run_until_done(job, make_service, faults, [(1, point, action), (2, SINK, "raise"), (2, point, action)])


def test_after_the_sink_before_the_commit_log(job: Job, make_service: Any, faults: Path) -> None:
    run_until_done(job, make_service, faults, [(1, SINK, "raise")])
    assert len(job.outputs[1]) == 2
