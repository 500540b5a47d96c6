"""Event time, timers and times to live in real batches: the same in a replay, by another driver, after a restore."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.agent.launcher import find_agent, stop_agent
from changelog_state.faults import InjectedFaultError, arm
from tests.support.stream import Input, Job

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
SCHEMA = "key string, what string, n long"
VARIABLES = [cs.Value("n", int, default=0), cs.List("minutes", int), cs.Map("seen", int, int)]


def minute(number: int) -> datetime:
    return NOON + timedelta(minutes=number)


def frame(spark: Any, *rows: tuple[str, int]) -> Any:
    return spark.createDataFrame([(key, minute(at), at) for key, at in rows], "key string, at timestamp, number int")


def session(key: str, rows: list[dict[str, Any]], state: Any) -> Any:
    for row in rows:
        state.n += 1
        state.minutes.append(row["number"])
        state.seen[row["number"]] = state.seen.get(row["number"], 0) + 1
    state.set_timer(max(row["at"] for row in rows).replace(tzinfo=UTC) + timedelta(minutes=10), "quiet")
    yield {"key": key, "what": "rows", "n": state.n}


def quiet(key: str, name: str, at: datetime, state: Any) -> Any:
    yield {"key": key, "what": f"{name} at {int((at - NOON).total_seconds()) // 60}", "n": len(state.minutes)}
    state.clear()


def run(service: cs.StateService, df: Any, batch: int, **options: Any) -> Any:
    settings = {
        "key": "key",
        "schema": SCHEMA,
        "on_timer": quiet,
        "event_time": "at",
        "watermark_delay": "5 minutes",
    }
    return service.apply(df, batch, session, **settings | options)


def rows_of(result: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in result.collect())


def test_sessions_end_by_the_watermark_once(spark: Any, make_service: Any, tmp_path: Path) -> None:
    service = make_service(state=VARIABLES)
    assert rows_of(run(service, frame(spark, ("a", 0), ("b", 1), ("a", 2)), 0)) == [
        ("a", "rows", 2),
        ("b", "rows", 1),
    ]
    assert service.get_all("a") == {"n": 2, "minutes": [0, 2], "seen": {0: 1, 2: 1}}
    assert service.last_batch.next_watermark_ms == minute(-3).timestamp() * 1000
    # The watermark follows the rows: only the batch after this one knows that it is 12:13.
    assert rows_of(run(service, frame(spark, ("c", 18)), 1)) == [("c", "rows", 1)]
    first = rows_of(run(service, frame(spark, ("b", 17)), 2))
    assert first == [("a", "quiet at 12", 2), ("b", "rows", 2)]  # whose timer has moved
    assert (service.last_batch.timers, service.last_batch.rows) == (1, 1)
    assert rows_of(run(service, frame(spark, ("b", 17)), 2)) == first, "a's timer is gone, and was there before"
    service.close()

    # Another driver replays the batch, on a disk that was lost.
    directory = tmp_path / "state"
    client = find_agent(directory)
    if client is not None:
        stop_agent(client, directory)
    shutil.rmtree(directory / "stores")
    again = make_service(state=VARIABLES)
    assert rows_of(run(again, frame(spark, ("b", 17)), 2)) == first
    # No rows at all: Spark has no tasks, and timers are called.
    assert rows_of(run(again, frame(spark, ("d", 40)), 3)) == [("d", "rows", 1)]
    idle = frame(spark, ("x", 1)).where("false")
    assert rows_of(run(again, idle, 4)) == [("b", "quiet at 27", 2), ("c", "quiet at 28", 1)]
    assert dict(again.scan()) == {"d": {"n": 1, "minutes": [40], "seen": {40: 1}}}
    assert rows_of(run(again, idle, 4)) == [("b", "quiet at 27", 2), ("c", "quiet at 28", 1)]
    assert again.metrics()["timers"] == 5


def test_what_becomes_of_late_rows(spark: Any, make_service: Any) -> None:
    def late(key: str, rows: list[dict[str, Any]], state: Any) -> Any:
        yield {"key": key, "what": "late", "n": len(rows)}

    policies: dict[str, Any] = {"accept": "accept", "drop": "drop", "side": "side_output", "call": late}
    found = {}
    for name, policy in policies.items():
        service = make_service(store=f"late-{name}", state=VARIABLES, partitions=2)
        run(service, frame(spark, ("a", 60)), 0)
        result = run(service, frame(spark, ("a", 61), ("a", 54), ("b", 55)), 1, late=policy)
        if policy == "side_output":
            result, side = result
            assert [row["number"] for row in side.collect()] == [54]
        found[name] = rows_of(result)
        assert service.last_batch.late_rows == 1
        service.close()
    others = [("b", "rows", 1)]
    assert found == {
        "accept": [("a", "rows", 3), *others],
        "drop": [("a", "rows", 2), *others],
        "side": [("a", "rows", 2), *others],
        "call": [("a", "late", 1), ("a", "rows", 2), *others],
    }


def test_a_driver_that_died_before_the_commit_leaves_no_watermark(
    spark: Any, make_service: Any, faults: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is durable, the state is not: the next driver computes the same batch with the same times."""
    service = make_service(state=VARIABLES)
    run(service, frame(spark, ("a", 0)), 0)
    arm(faults, "driver.before_commit", "raise")
    with pytest.raises(InjectedFaultError):
        run(service, frame(spark, ("a", 30)), 1)
    again = make_service(state=VARIABLES)
    assert rows_of(run(again, frame(spark, ("a", 30)), 1)) == [("a", "rows", 2)]
    assert again.last_batch.watermark_ms == minute(-5).timestamp() * 1000
    assert again.last_batch.next_watermark_ms == minute(25).timestamp() * 1000

    # A clock that is behind brings nothing back that has expired.
    time_ms = again.last_batch.batch_time_ms
    monkeypatch.setattr("changelog_state.batch_run.time", SimpleNamespace(time=lambda: time_ms / 1000 - 60))
    run(again, frame(spark, ("a", 31)), 2)
    assert again.last_batch.batch_time_ms == time_ms


def test_values_expire_where_there_are_no_rows(spark: Any, make_service: Any, broker: Any, tmp_path: Path) -> None:
    """In source mode a partition without rows has no task of Spark's own."""

    def remember(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.set("seen", len(rows))

    service = make_service(partitions=4, ttl=cs.Ttl(0.05))
    source = Input(broker.bootstrap_servers)
    job = Job(spark, source, tmp_path / "checkpoint", partitioning="source")
    job.function = remember
    outcomes = []
    job.after_sink = lambda batch: outcomes.append(service.last_batch)
    source.send(["a", "b", "c", "d", "e", "f"])
    job.run(service)
    source.send(["a"])
    job.run(service)
    source.send(["a"])
    job.run(service)
    assert sum(batch.expired for batch in outcomes) == 5  # "a" was written again, not removed
    assert outcomes[-1].rows == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"event_time": "number"}, "of type int; give one of type timestamp"),
        ({"event_time": "nothing"}, "is not in the DataFrame"),
        ({"event_time": None, "late": "drop"}, "need to know when rows happened"),
        ({"watermark_delay": "soon"}, "is not a length of time"),
        ({"late": "ignore"}, "late is 'ignore'; use one of"),
    ],
)
def test_wrong_options(spark: Any, make_service: Any, options: dict[str, Any], match: str) -> None:
    options = {"watermark_delay": 0} | options
    with pytest.raises(cs.ConfigurationError, match=match):
        run(make_service(), frame(spark, ("a", 0)), 0, **options)


def test_timers_need_someone_who_handles_them(spark: Any, make_service: Any) -> None:
    with pytest.raises(cs.ConfigurationError, match="give on_timer= a function"):
        run(make_service(state=VARIABLES), frame(spark, ("a", 0)), 0, on_timer=None)
