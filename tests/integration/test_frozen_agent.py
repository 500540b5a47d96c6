"""An agent stops answering in the middle of a Spark job, without its connections being closed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import changelog_state as cs
from tests.support.polling import until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SCHEMA = "user string, total long"
USERS = [f"user-{number}" for number in range(20)]


def test_the_job_is_ended_and_the_batch_runs_again(spark: Any, make_service: Any, tmp_path: Path) -> None:
    """It answers again as soon as it is taken for lost: the batch runs again all the same, and counts once."""
    service: cs.StateService = make_service()
    events = spark.createDataFrame([(user,) for user in USERS], "user string")
    frozen = tmp_path / "frozen"
    agent_pid: list[int] = []

    def count(key: str, rows: list[dict[str, Any]], state: cs.State) -> Iterator[dict[str, Any]]:
        if agent_pid and not frozen.exists():
            os.kill(agent_pid[0], signal.SIGSTOP)
            frozen.touch()
        total = state.get("total", 0) + len(rows)
        state.set("total", total)
        yield {"user": key, "total": total}

    service.apply(events, 0, count, key="user", schema=SCHEMA)
    agent_pid.append(service.status()["agents"][0]["pid"])
    coordinator = service._coordinator
    assert coordinator is not None
    losses: list[str] = []
    coordinator._watch.on_loss("test", lambda address, error: losses.append(address))

    def thaw_when_noticed() -> None:
        until(lambda: losses, "the loss is noticed")
        os.kill(agent_pid[0], signal.SIGCONT)

    thawing = threading.Thread(target=thaw_when_noticed)
    thawing.start()
    try:
        result = service.apply(events, 1, count, key="user", schema=SCHEMA)
        assert {row.user: row.total for row in result.collect()} == dict.fromkeys(USERS, 2)
    finally:
        thawing.join()
        os.kill(agent_pid[0], signal.SIGCONT)
    assert frozen.exists()
    assert {key: values["total"] for key, values in service.scan()} == dict.fromkeys(USERS, 2)
