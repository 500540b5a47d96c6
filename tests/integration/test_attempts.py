"""Several attempts of one task, in every order of their steps."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from changelog_state.agent.messages import StagedWorkLostError
from changelog_state.codec.keys import record_key
from changelog_state.codec.kinds import DATA
from changelog_state.config import StoreConfig
from changelog_state.errors import (
    BatchSupersededError,
    InvalidInputError,
    StaleClaimError,
)
from tests.support.driver import (
    CODEC,
    Attempt,
    Event,
    LocalAgent,
    Model,
)
from tests.support.polling import until
from tests.support.protocol import FIRST, committed, markers, send_commit

pytestmark = pytest.mark.kafka

STEPS = ("get", "stage", "commit")
INTERLEAVINGS = sorted(
    order for order in set(itertools.permutations([0, 0, 0, 1, 1, 1])) if order[0] == 0
)  # the attempts are alike, so the other half mirrors this one


def test_every_interleaving_of_two_attempts_applies_once(agent: LocalAgent, make_driver: Any) -> None:
    """All 10 orders, each a batch of its own. A GET after the commit sees what was before it."""
    driver = make_driver(agent)
    model = Model()
    for batch, order in enumerate(INTERLEAVINGS):
        events: list[Event] = [("a", 1), (f"only-{batch}", 7), (f"only-{batch - 1}", None)]
        before = dict(model.totals)
        expected = model.run(events)
        gate = driver.gate(batch)
        attempts = [driver.attempt(gate, events), driver.attempt(gate, events)]
        tickets: list[Any] = [None, None]
        answers: list[dict[str, Any]] = []
        done = [0, 0]
        for who in order:
            step = STEPS[done[who]]
            done[who] += 1
            if step == "get":
                attempts[who].get()
            elif step == "stage":
                tickets[who] = attempts[who].stage()
            else:
                answers.append(send_commit(agent, gate, tickets[who]))
        for attempt in attempts:
            assert sorted(attempt.rows, key=repr) == expected, order
            stored = dict(zip(sorted({key for key, _ in events}), attempt.read(), strict=True))
            assert {key for key, names in stored.items() if names} == {key for key, _ in events if key in before}
            attempt.close()
        assert [answer["replayed"] for answer in answers] == [False, True], order
        assert answers[1]["same"] is True
        assert driver.dump(agent.client) == model.entries, order
    assert len(markers(driver.config)) == len(INTERLEAVINGS)


def test_a_replay_that_computes_something_else_is_told(agent: LocalAgent, make_driver: Any) -> None:
    driver = make_driver(agent)
    driver.run(0, FIRST)
    again = make_driver(agent)
    again.run(0, FIRST)
    assert again.answers[0] == {"replayed": True, "same": True}
    other = make_driver(agent)
    other.run(0, [("a", 2), *FIRST[1:]])
    assert other.answers[0] == {"replayed": True, "same": False}
    model = Model()
    model.run(FIRST)
    assert other.dump(agent.client) == model.entries


def test_an_attempt_that_ends_without_a_seal_stages_nothing(agent: LocalAgent, make_driver: Any, config: Any) -> None:
    """Spark cuts a cancelled task's input; what it had staged until then must not count."""
    driver = make_driver(agent)
    gate = driver.gate(0)
    cut = driver.attempt(gate, FIRST).get()
    cut._session.stage([record_key(DATA, CODEC.encode("a"), "total")], [b"half"], [None])
    cut.close()
    partition = agent.partition(config)
    with pytest.raises(StagedWorkLostError):
        agent.client.commit(gate.headers[0], "made-up", b"")
    assert not partition._desk._staged
    until(lambda: agent.registry._budget.used_bytes == 0, "the cut attempt's memory is given back")
    assert driver.dump(agent.client) == {}


def test_sealed_work_does_not_change_any_more(agent: LocalAgent, make_driver: Any, config: StoreConfig) -> None:
    """The driver commits what the ticket tells, not what a task that goes on adds to it."""
    driver = make_driver(agent)
    gate = driver.gate(0)
    attempt = driver.attempt(gate, FIRST).get()
    ticket = attempt.stage()
    attempt._session.stage([record_key(DATA, CODEC.encode("zzz"), "total")], [b"late"], [None])
    with pytest.raises(InvalidInputError, match="seal"):
        attempt._session.seal(["total"])
    assert send_commit(agent, gate, ticket)["records"] == ticket.records == len(FIRST)
    assert agent.partition(config)._marker.mutations.hex() == ticket.digest  # type: ignore[union-attr]
    model = Model()
    model.run(FIRST)
    assert driver.dump(agent.client) == model.entries


def test_keys_that_do_not_ascend_are_refused(agent: LocalAgent, make_driver: Any) -> None:
    driver = make_driver(agent)
    gate = driver.gate(0)
    attempt = driver.attempt(gate, FIRST)
    keys = [record_key(DATA, CODEC.encode(key), "total") for key in ("b", "a")]
    attempt._session.stage(keys, [b"1", b"2"], [None, None])
    with pytest.raises(InvalidInputError, match="ascending"):
        attempt._session.seal(["total"])


def test_attempts_of_an_earlier_run_are_refused(agent: LocalAgent, make_driver: Any) -> None:
    """The batch runs again under another token; a task that outlived the first run must not mix in."""
    driver = make_driver(agent)
    first = driver.gate(0)
    late = driver.attempt(first, FIRST).get()
    second = driver.gate(0)
    with pytest.raises(BatchSupersededError):
        late.stage()
    ticket = driver.attempt(second, FIRST).get().stage()
    with pytest.raises(BatchSupersededError):
        agent.client.commit(first.headers[0], ticket.stage_id, bytes.fromhex(ticket.digest))
    assert driver.commit(second, [ticket])[0]["records"] == len(FIRST)


def test_a_request_for_another_claim_is_refused(agent: LocalAgent, make_driver: Any, config: StoreConfig) -> None:
    driver = make_driver(agent)
    gate = driver.gate(0)
    ticket = driver.attempt(gate, FIRST).get().stage()
    header = replace(gate.headers[0], claim=gate.owners[0].claim - 1)
    stray = Attempt(gate.owners[0], header, FIRST, driver.function)
    with pytest.raises(StaleClaimError, match=f"claim {header.claim}"):
        stray.get()
    with pytest.raises(StaleClaimError):
        Attempt(gate.owners[0], header, FIRST, driver.function).stage()
    with pytest.raises(StaleClaimError):
        agent.client.commit(header, ticket.stage_id, bytes.fromhex(ticket.digest))
    assert send_commit(agent, gate, ticket)["records"] == len(FIRST)


def test_a_batch_that_changes_nothing_writes_nothing(
    agent: LocalAgent, make_driver: Any, config: StoreConfig
) -> None:
    driver = make_driver(agent)
    driver.run(0, FIRST)
    before = len(committed(config))
    rows = driver.run(1, [("a", 0)])
    assert rows == [("a", 1, 1)]
    assert len(committed(config)) == before
    assert driver.answers == {}
