"""Kafka down at the start and in the middle of a batch: an error that names it, in bounded time, and nothing lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import changelog_state as cs
from changelog_state.broker import EmbeddedBroker, embedded_broker
from changelog_state.faults import arm
from tests.support.stream import SCHEMA, Input, Job, count

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

BOUND_SECONDS = 120.0
"""Far above what it takes; only "bounded at all" is checked, not speed."""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with embedded_broker(data_dir=tmp_path / "kafka", heap_mb=256) as running:
        yield running


def test_down_at_the_start(spark: Any, make_service: Any) -> None:
    service = make_service(bootstrap_servers="127.0.0.1:9")
    frame = spark.createDataFrame([("a",)], "user_id string")
    started = time.monotonic()
    with pytest.raises(cs.BrokerUnavailableError, match="127.0.0.1:9 did not answer.*check that the broker is up"):
        service.apply(frame, 0, count, key="user_id", schema=SCHEMA)
    with pytest.raises(cs.BrokerUnavailableError, match="127.0.0.1:9"):
        service.status()
    assert time.monotonic() - started < BOUND_SECONDS


@pytest.mark.timeout(400)
def test_down_in_the_middle_of_a_batch(
    spark: Any, make_service: Any, own_broker: EmbeddedBroker, tmp_path: Path, faults: Path
) -> None:
    users = [f"user-{n % 37}" for n in range(500)]
    source = Input(own_broker.bootstrap_servers)
    source.send(users)
    job = Job(spark, source, tmp_path / "checkpoint", rows_per_batch=200)

    def kill_broker(batch: int) -> None:
        if batch == 1 and not (faults / "driver.before_commit.fired").exists():
            arm(faults, "driver.before_commit", "hold")

    job.before_apply = kill_broker
    query = job.start(make_service(bootstrap_servers=own_broker.bootstrap_servers))
    held = faults / "driver.before_commit.held"
    while not held.exists():
        assert query.isActive, query.exception()
        time.sleep(0.01)
    own_broker.kill()
    held.unlink()
    started = time.monotonic()
    with pytest.raises(PySparkException, match=f"{own_broker.bootstrap_servers}"):
        query.awaitTermination(BOUND_SECONDS)
    assert time.monotonic() - started < BOUND_SECONDS

    own_broker.start()
    service = make_service(bootstrap_servers=own_broker.bootstrap_servers)
    job.run(service)
    job.check(service, users)
