"""A node is lost with its disk, in the middle of a commit; another machine takes its place, and the query goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.broker import EmbeddedBroker
from changelog_state.faults import arm
from tests.support.node import Node, Place
from tests.support.polling import until
from tests.support.stream import PARTITIONS, Input, Job
from tests.support.stream_process import StreamProcess

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

USERS = [f"user-{random.Random(11 * n).randrange(80)}" for n in range(800)]
LOST_AT = "commit.in_transaction"
DIES_AT = "replay.between_chunks"


@pytest.fixture
def nodes(tmp_path: Path, faults: Path) -> Iterator[tuple[Node, Node, Place]]:
    """A first machine, its replacement, and the place that both have in turn."""
    first, second, place = Node(tmp_path / "first"), Node(tmp_path / "second"), Place(tmp_path / "node")
    first.start()
    place.now_is(first)
    yield first, second, place
    for held in faults.glob("*.held"):
        held.unlink()
    first.kill()
    second.kill()


@pytest.fixture
def source(broker: EmbeddedBroker) -> Input:
    found = Input(broker.bootstrap_servers)
    found.send(USERS)
    return found


def where(service: cs.StateService) -> tuple[str, ...]:
    settings = service._settings.as_given()
    names = ("application", "store", "bootstrap_servers")
    return tuple(text for name in names for text in (f"--{name.replace('_', '-')}", settings[name]))


@pytest.mark.parametrize("how", ["empty disk", "restored first", "replacement killed in its restore"])
def test_the_query_goes_on(
    how: str,
    spark: Any,
    source: Input,
    nodes: tuple[Node, Node, Place],
    make_service: Any,
    faults: Path,
    tmp_path: Path,
) -> None:
    first, second, place = nodes
    service = make_service(state_dir=place.path, agents="external")
    job = Job(spark, source, tmp_path / "checkpoint")

    def lose_the_first(batch: int) -> None:
        if batch == 2 and not (faults / f"{LOST_AT}.fired").exists():
            arm(faults, LOST_AT, "kill 3")

    def replace_it() -> dict[str, Any] | None:
        """What whoever runs the cluster does."""
        first.wait()
        first.lose()
        restored = second.restore(*where(service)) if how == "restored first" else None
        if how.startswith("replacement killed"):
            arm(faults, DIES_AT, "kill 2")
        second.start()
        place.now_is(second)
        if how.startswith("replacement killed"):
            second.wait()
            second.start()
        return restored

    job.before_apply = lose_the_first
    with ThreadPoolExecutor(1) as operator:
        replacing = operator.submit(replace_it)
        job.run(service)
        restored = replacing.result()
    assert (faults / f"{LOST_AT}.fired").exists()
    assert not first.disk.exists()
    job.check(service, USERS)
    replayed = [partition["restore"]["records"] for partition in service.status()["partitions"]]
    if restored is None:
        assert min(replayed) > 0
    else:
        assert all(partition["records"] for partition in restored["partitions"])
        assert replayed == [0] * PARTITIONS, "nothing was left for the agent"
    if how.startswith("replacement killed"):
        assert (faults / f"{DIES_AT}.fired").exists()


def test_the_driver_is_lost_at_the_same_moment(
    source: Input,
    nodes: tuple[Node, Node, Place],
    make_service: Any,
    faults: Path,
    tmp_path: Path,
) -> None:
    first, second, place = nodes
    service = make_service(state_dir=place.path, agents="external")
    driver = StreamProcess(tmp_path, source, {**service._settings.as_given(), "state_dir": str(place.path)})
    held = faults / f"{LOST_AT}.held"
    # Batch 0 has four commits, so this is in batch 1, after two of its partitions at least have begun.
    arm(faults, LOST_AT, "hold 7")
    driver.start()
    try:
        until(held.exists, "the agent is inside a commit", 120)
    finally:
        driver.kill()
    first.lose()
    held.unlink()
    second.start()
    place.now_is(second)
    driver.run()
    driver.check(service, USERS)
