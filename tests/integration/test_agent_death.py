"""The agent's process dies, at every named place, with its disk and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from changelog_state.config import StoreConfig
from changelog_state.faults import arm
from tests.support.driver import (
    AgentProcess,
    Event,
    Model,
    home_of,
)

pytestmark = pytest.mark.kafka


COMMIT_POINTS = [
    "commit.before_transaction",
    "commit.in_transaction",
    "commit.before_kafka_commit",
    "commit.after_kafka_commit",
    "store.between_chunks",
    "commit.after_local_write",
]
STAGE_POINTS = ["stage.before_seal", "stage.after_seal"]
CLAIM_POINTS = [
    "claim.before_fencing",
    "claim.in_transaction",
    "claim.before_kafka_commit",
    "claim.before_replay",
    "replay.between_chunks",
]


@pytest.mark.parametrize("wiped", [False, True], ids=["disk intact", "disk wiped"])
@pytest.mark.parametrize("point", [*STAGE_POINTS, *COMMIT_POINTS, *CLAIM_POINTS])
def test_the_agent_dies(
    point: str, wiped: bool, process: AgentProcess, make_driver: Any, faults: Path, pair: StoreConfig
) -> None:
    """Killed in batch 1, then once more when the batch is replayed by a new driver; rows and state as if not."""
    in_claim = point in CLAIM_POINTS
    model = Model()
    driver = make_driver(process, config=pair, chunk=2)
    keys = [f"k{number}" for number in range(12)]
    assert {home_of(key, 2) for key in keys} == {0, 1}
    first: list[Event] = [(key, number) for number, key in enumerate(keys)]
    second: list[Event] = [(key, None if number % 3 == 0 else 100) for number, key in enumerate(keys)]
    second += [(f"new{number}", number) for number in range(4)]
    assert driver.run(0, first) == model.run(first)
    expected = model.run(second)

    def node_is_replaced() -> None:
        process.kill()  # it is dying of its own; this waits for it
        if wiped:
            process.wipe(pair)

    if in_claim:
        node_is_replaced()
    arm(faults, point)
    starts = process.starts
    assert driver.run(1, second, on_lost=node_is_replaced) == expected
    assert (faults / f"{point}.fired").exists(), "the fault point was not reached"
    assert process.starts > starts
    assert driver.dump(process.client) == model.entries

    # Spark did not hear of it: a new driver asks for the batch again, and the agent dies again.
    (faults / f"{point}.fired").unlink()
    if in_claim:
        node_is_replaced()
    if point not in COMMIT_POINTS:  # a replayed commit writes nothing, so it passes none of them
        arm(faults, point)
    heir = make_driver(process, config=pair, chunk=2)
    assert heir.run(1, second, on_lost=node_is_replaced) == expected
    assert (faults / f"{point}.fired").exists() == (point not in COMMIT_POINTS)
    assert {partition: answer["replayed"] for partition, answer in heir.answers.items()} == {0: True, 1: True}
    assert all(answer["same"] for answer in heir.answers.values())
    assert heir.dump(process.client) == model.entries
    third: list[Event] = [(key, 1) for key in keys]
    assert heir.run(2, third) == model.run(third)
    assert heir.dump(process.client) == model.entries
