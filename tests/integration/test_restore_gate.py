"""The gate, for real: while one partition is being restored, no function runs on any."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.agent.client import AgentClient
from changelog_state.agent.launcher import find_agent
from changelog_state.faults import arm
from restore import coordinator as coordinator_module
from tests.support.polling import until
from tests.support.recorder import Recorder
from tests.support.stream import SCHEMA, count

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

HELD = "replay.between_chunks"
USERS = [f"user-{number}" for number in range(40)]


class Traced:
    """Counts, and leaves a file per call."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def __call__(self, key: str, rows: list[dict[str, Any]], state: cs.State) -> Any:
        (self.directory / uuid.uuid4().hex).touch()
        yield from count(key, rows, state)

    @property
    def calls(self) -> int:
        return len(list(self.directory.iterdir()))


class Clock:
    """The coordinator's time, which a test can put forward."""

    sleep = staticmethod(time.sleep)

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_seconds


@pytest.fixture
def traced(tmp_path: Path) -> Traced:
    return Traced(tmp_path / "calls")


@pytest.fixture
def lost_node(spark: Any, make_service: Any, tmp_path: Path) -> None:
    """A store with one batch, whose only agent was killed and whose only disk is gone."""
    with make_service() as service:
        applied(service, spark, 0, count)
        os.kill(service.status()["agents"][0]["pid"], signal.SIGKILL)
        until(lambda: find_agent(tmp_path / "state") is None, "the agent is gone")
    shutil.rmtree(tmp_path / "state" / "stores")


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every time that the gate was tried."""
    seen: list[int] = []
    original = AgentClient.open_batch

    def spy(self: AgentClient, *args: Any) -> Any:
        seen.append(1)
        return original(self, *args)

    monkeypatch.setattr(AgentClient, "open_batch", spy)
    return seen


def applied(service: cs.StateService, spark: Any, batch: int, function: Callable[..., Any]) -> dict[str, int]:
    frame = spark.createDataFrame([(user,) for user in USERS], "user_id string")
    result = service.apply(frame, batch, function, key="user_id", schema=SCHEMA)
    return {row.user_id: row.total for row in result.collect()}


def restoring(service: cs.StateService) -> dict[str, Any] | None:
    """The one partition that is not ready, if all others are."""
    rows = [row for row in service.status()["partitions"] if row["phase"] != "ACTIVE"]
    return rows[0] if len(rows) == 1 and rows[0]["phase"] == "RESTORING" else None


@pytest.mark.usefixtures("lost_node")
def test_no_function_runs_before_every_partition_is_restored(
    spark: Any, make_service: Any, traced: Traced, faults: Path, polls: list[int]
) -> None:
    recorder = Recorder()
    service = make_service(restore_listener=recorder)
    arm(faults, HELD, "hold")
    with ThreadPoolExecutor(1) as pool:
        batch = pool.submit(applied, service, spark, 1, traced)
        try:
            until((faults / f"{HELD}.held").exists, "a restore is held up")
            row = until(lambda: restoring(make_service()), "the others are ready")
            tried = len(polls)
            until(lambda: len(polls) >= tried + 3 or batch.done(), "the gate is tried again and again")
            assert not batch.done()
            assert traced.calls == 0
            number = row["partition"]
            assert recorder.kinds(number) == ["start"]
            assert [recorder.kinds(other) for other in range(4) if other != number] == [["start", "end"]] * 3
            figures = row["restore"]
            assert (figures["need"], figures["start"], figures["fraction"]) == ("no local store", 0, 0.0)
            assert figures["records_to_do"] == figures["end"] > 0
        finally:
            (faults / f"{HELD}.held").unlink(missing_ok=True)
        assert batch.result(60) == dict.fromkeys(USERS, 2)
    assert traced.calls == len(USERS)
    assert recorder.kinds(number) == ["start", "end"]
    assert recorder.of("end", number)[0].fraction == 1.0
    assert dict(service.scan()) == {user: {"total": 2} for user in USERS}
    [after] = [row for row in service.status()["partitions"] if row["partition"] == number]
    assert (after["restore"]["fraction"], after["restore"]["records_to_do"]) == (1.0, 0)


@pytest.mark.usefixtures("lost_node")
def test_the_deadline_names_what_is_missing_and_nothing_has_run(
    spark: Any, make_service: Any, traced: Traced, faults: Path, polls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(coordinator_module, "time", clock)
    service = make_service()
    arm(faults, HELD, "hold")
    with ThreadPoolExecutor(1) as pool:
        batch = pool.submit(applied, service, spark, 1, traced)
        try:
            row = until(lambda: restoring(make_service()), "one is held up, the others are ready")
            tried = len(polls)
            until(lambda: len(polls) >= tried + 2 or batch.done(), "the driver has seen that")
            clock.ahead_seconds = 1_801.0
            with pytest.raises(cs.RestoreTimeoutError) as caught:
                batch.result(60)
            assert traced.calls == 0
        finally:
            (faults / f"{HELD}.held").unlink(missing_ok=True)
    assert (
        f"was not ready within 1800 s: partition {row['partition']} is RESTORING at position 0 of end offset "
        f"{row['restore']['end']}. No event of the batch was processed"
    ) in str(caught.value)
    assert applied(service, spark, 1, traced) == dict.fromkeys(USERS, 2)
    assert dict(service.scan()) == {user: {"total": 2} for user in USERS}
    assert traced.calls == len(USERS)


def test_the_listener_stays_in_its_process(make_service: Any) -> None:
    service = make_service(restore_listener=Recorder(), restore_memory_mb=64, show_progress=False)
    copy = pickle.loads(pickle.dumps(service))
    assert copy._settings == service._settings
    assert (copy._settings.restore_memory_mb, copy._settings.show_progress) == (64, False)
    assert (service._restore_listener is None, copy._restore_listener) == (False, None)
