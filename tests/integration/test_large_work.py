"""More than fits: into memory, or into a list of names."""

from __future__ import annotations

from typing import Any

import pytest

from changelog_state.agent.committing import MOST_LISTED_NAMES
from changelog_state.agent.staging import StagingBudget
from changelog_state.config import StoreConfig
from tests.support.driver import (
    Event,
    LocalAgent,
    Model,
)
from tests.support.protocol import FIRST

pytestmark = pytest.mark.kafka


def test_staged_work_beyond_the_budget_is_spilled(agent: LocalAgent, make_driver: Any, config: StoreConfig) -> None:
    spill_dir = agent.registry._directory.spill_dir
    budget = StagingBudget(40_000, spill_dir)
    driver = make_driver(agent, chunk=100)
    driver.gate(0)
    agent.partition(config)._desk._budget = budget
    model = Model()
    events: list[Event] = [(f"k{number:06}", number) for number in range(5_000)]
    gate = driver.gate(0)
    driver.record(gate, 0)
    attempt = driver.attempt(gate, events).get()
    ticket = attempt.stage(100)
    rival = driver.attempt(gate, events).get()
    assert rival.stage(100).digest == ticket.digest, "a digest does not depend on where the work is"
    assert len(list(spill_dir.iterdir())) == 2
    assert 0 < budget.used_bytes <= budget.limit_bytes
    driver.commit(gate, [ticket])
    assert sorted(attempt.rows, key=repr) == model.run(events)
    assert driver.dump(agent.client) == model.entries
    assert list(spill_dir.iterdir()) == []
    assert budget.used_bytes == 0
    assert driver.run(0, events) == Model().run(events), "images of spilled work"
    more: list[Event] = [(key, None) for key, _ in events]
    assert driver.run(1, more) == model.run(more)
    assert driver.dump(agent.client) == {}
    assert list(spill_dir.iterdir()) == []


@pytest.mark.parametrize("rebuilt", [False, True], ids=["own images", "images from the log"])
def test_more_names_than_are_listed(rebuilt: bool, make_agent: Any, make_driver: Any, config: StoreConfig) -> None:
    """Beyond a number of names a key is read by scanning; a replay of the batch that went beyond it too."""

    def many(key: str, amounts: Any, state: Any) -> Any:
        before = dict(state.items())
        for amount in amounts:
            for number in range(amount):
                state.set(f"n{number:02}", (state.get(f"n{number:02}") or 0) + 1)
            state.delete(f"n{amount:02}")
        return key, before, dict(state.items())

    first, second = make_agent("first"), make_agent("second")
    driver = make_driver(first, function=many)
    few: list[Event] = [("a", 3), ("b", 2), ("ab", 1)]
    lots: list[Event] = [("a", MOST_LISTED_NAMES + 5), ("b", 1), ("new", 2)]
    rows = driver.run(0, few)
    assert rows[0] == ("a", {}, {f"n{number:02}": 1 for number in range(3)})
    assert first.partition(config)._marker.names is not None  # type: ignore[union-attr]
    expected = driver.run(1, lots)
    assert first.partition(config)._marker.names is None  # type: ignore[union-attr]
    assert expected[0][1] == {f"n{number:02}": 1 for number in range(3)}
    assert expected[1][1:] == ({"n00": 1, "n01": 1}, {"n00": 2})
    after = driver.dump(first.client)
    heir = make_driver(second if rebuilt else first, function=many)
    assert heir.run(1, lots) == expected
    assert heir.answers[0] == {"replayed": True, "same": True}
    assert heir.dump((second if rebuilt else first).client) == after
    third = heir.run(2, [("a", 1), ("b", 1)])
    assert third[0][1] == expected[0][2]
    assert third[1] == ("b", {"n00": 2}, {"n00": 3})


def test_names_are_listed_again_after_clear(agent: LocalAgent, make_driver: Any, config: StoreConfig) -> None:
    driver = make_driver(agent)
    driver.run(0, FIRST)
    assert driver.coordinator.clear() == len(FIRST)
    gate = driver.gate(0)
    assert driver.attempt(gate, FIRST).read() == [{}] * len(FIRST)
    assert agent.partition(config)._marker is None
