"""Drivers and agents come, go, and come back when they should not: and if one is replaced here?"""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from changelog_state.codec.kinds import CLAIM
from changelog_state.config import StoreConfig
from changelog_state.errors import BatchSupersededError, ChangelogStateError, StaleClaimError, StaleEpochError
from changelog_state.faults import arm
from restore.coordinator import BatchLostError
from tests.support.driver import (
    AgentProcess,
    Event,
    LocalAgent,
    Model,
    dump,
    home_of,
    identity_of,
)
from tests.support.polling import until
from tests.support.protocol import FIRST, SECOND, WAIT_SECONDS, committed, markers, send_commit

pytestmark = pytest.mark.kafka


def kafka_clients() -> int:
    gc.collect()
    return sum(isinstance(each, Producer) for each in gc.get_objects())


def test_a_driver_that_is_closed_holds_no_client(agent: LocalAgent, make_driver: Any) -> None:
    """Not even while something refers to it, such as the error of a batch that failed."""
    before = kafka_clients()
    driver = make_driver(agent)
    assert kafka_clients() == before + 1
    driver.close()
    assert kafka_clients() == before


@pytest.mark.parametrize("replaced_before", ["get", "stage", "commit"])
def test_a_replaced_driver_is_refused(
    replaced_before: str, agent: LocalAgent, make_driver: Any, config: StoreConfig
) -> None:
    old = make_driver(agent)
    old.run(0, FIRST)
    gate = old.gate(1)
    attempt = old.attempt(gate, SECOND)
    if replaced_before != "get":
        attempt.get()
    ticket = attempt.stage() if replaced_before == "commit" else None
    new = make_driver(agent)
    new.gate(1)
    late = {"get": attempt.get, "stage": attempt.stage, "commit": lambda: old.commit(gate, [ticket])}
    with pytest.raises(StaleEpochError):
        late[replaced_before]()
    assert agent.registry._budget.used_bytes == 0, "work of the old driver is dropped"
    with pytest.raises(StaleEpochError):
        old.gate(1)
    with pytest.raises(StaleEpochError):
        agent.client.claim(config, identity_of(config), old.epoch, [0], 10)
    with pytest.raises(StaleEpochError):
        old.record(gate, 1)
    model = Model()
    model.run(FIRST)
    assert new.run(1, SECOND) == model.run(SECOND)
    assert new.dump(agent.client) == model.entries


def test_a_new_epoch_drops_older_work_in_every_partition(
    agent: LocalAgent, make_driver: Any, pair: StoreConfig
) -> None:
    """Also where the new driver has not opened a batch yet: its claim of one partition tells them all."""
    old = make_driver(agent, config=pair)
    gate = old.gate(0)
    keys = {home_of(key, 2): key for key in "abcdefgh"}
    tickets = [old.attempt(gate, [(keys[p], 1)], p).get().stage() for p in (0, 1)]
    assert agent.registry._budget.used_bytes > 0
    new = make_driver(agent, config=pair)
    agent.client.claim(pair, identity_of(pair), new.epoch, [1], WAIT_SECONDS)
    assert agent.registry._budget.used_bytes == 0
    with pytest.raises(StaleEpochError):
        old.commit(gate, tickets)
    new.gate(0)
    assert new.dump(agent.client) == {}


def test_an_old_driver_s_commit_before_the_new_one_speaks_counts_once(agent: LocalAgent, make_driver: Any) -> None:
    """The epoch is taken, but the agent has not heard of it: what it commits until then, the new driver replays."""
    old = make_driver(agent)
    model = Model()
    assert old.run(0, FIRST) == model.run(FIRST)
    gate = old.gate(1)
    old.record(gate, 1)
    ticket = old.attempt(gate, SECOND).get().stage()
    new = make_driver(agent)
    old.commit(gate, [ticket])
    expected = model.run(SECOND)
    assert new.run(1, SECOND) == expected
    assert new.answers[0] == {"replayed": True, "same": True}
    assert new.dump(agent.client) == model.entries


@pytest.mark.parametrize("cleared_before", ["get", "stage", "commit"])
def test_clear_in_the_middle_of_a_batch(
    cleared_before: str, agent: LocalAgent, make_driver: Any, config: StoreConfig
) -> None:
    driver = make_driver(agent)
    driver.run(0, FIRST)
    gate = driver.gate(1)
    attempt = driver.attempt(gate, SECOND)
    if cleared_before != "get":
        attempt.get()
    ticket = attempt.stage() if cleared_before == "commit" else None
    assert driver.coordinator.clear() == len(FIRST)
    late = {"get": attempt.get, "stage": attempt.stage, "commit": lambda: send_commit(agent, gate, ticket)}
    with pytest.raises(BatchSupersededError):
        late[cleared_before]()
    assert driver.dump(agent.client) == {}
    model = Model()
    assert driver.run(0, SECOND) == model.run(SECOND), "cleared also means: batch 0 is new again"
    assert driver.dump(agent.client) == model.entries


@pytest.mark.parametrize("wiped", [False, True], ids=["disk intact", "disk wiped"])
@pytest.mark.parametrize("point", ["clear.in_transaction", "clear.before_kafka_commit", "claim.before_replay"])
def test_clear_is_all_or_nothing(
    point: str, wiped: bool, process: AgentProcess, make_driver: Any, faults: Path, config: StoreConfig
) -> None:
    """The agent dies inside the clearing transaction, or when the cleared partition is claimed next."""
    driver = make_driver(process)
    driver.run(0, FIRST)
    if point == "claim.before_replay":
        assert driver.coordinator.clear() == len(FIRST)
        expected: dict[Any, Any] = {}
        process.kill()
        arm(faults, point)
    else:
        model = Model()
        model.run(FIRST)
        expected = model.entries
        arm(faults, point)
        with pytest.raises(ChangelogStateError):
            driver.coordinator.clear()
        process.kill()
    if wiped:
        process.wipe(config)
    again = make_driver(process)
    [status] = again.gate(1).statuses
    assert (faults / f"{point}.fired").exists()
    assert (status["last_batch"] is None) == (not expected), "a cleared store has seen no batch"
    assert again.dump(process.client) == expected
    again.coordinator.clear()
    assert again.run(0, SECOND) == Model().run(SECOND)


def test_a_zombie_agent_is_fenced(make_agent: Any, make_driver: Any, config: StoreConfig) -> None:
    """The old owner never hears that its partition was moved: Kafka refuses its commit, and it lets go."""
    zombie, heir = make_agent("zombie"), make_agent("heir")
    old = make_driver(zombie)
    model = Model()
    assert old.run(0, FIRST) == model.run(FIRST)
    gate = old.gate(1)
    ticket = old.attempt(gate, [("a", 1_000)]).get().stage()
    new = make_driver(heir)
    assert new.run(1, SECOND) == model.run(SECOND)
    assert zombie.partition(config).status()["phase"] == "ACTIVE", "it does not know"
    with pytest.raises(BatchLostError):
        old.commit(gate, [ticket])
    status = zombie.partition(config).status()
    assert (status["phase"], status["claim"]) == ("FAILED", None)
    assert new.dump(heir.client) == model.entries
    assert len(markers(config)) == 2
    # The log is right too, and the zombie can follow it, and own it again under a new driver.
    assert dump(zombie.client, config) == model.entries
    last = make_driver(zombie)
    more: list[Event] = [("a", 1), ("gone", 1)]
    assert last.run(2, more) == model.run(more)
    assert last.dump(zombie.client) == model.entries


def test_a_zombie_that_is_claimed_again_restores_first(make_agent: Any, make_driver: Any, config: Any) -> None:
    """Renewing the claim with the old producer fails, so the partition goes the long way."""
    first, second = make_agent("first"), make_agent("second")
    model = Model()
    assert make_driver(first).run(0, FIRST) == model.run(FIRST)
    assert make_driver(second).run(1, SECOND) == model.run(SECOND)
    back = make_driver(first)
    more: list[Event] = [("a", 100), ("gone", 1), ("new", None)]
    assert back.run(2, more) == model.run(more)
    assert back.dump(first.client) == model.entries


def test_a_zombie_does_not_vouch_for_its_store(make_agent: Any, make_driver: Any, config: StoreConfig) -> None:
    """The catch-up time says that nothing was missed. An owner without its partition cannot say so."""
    zombie, heir = make_agent("zombie"), make_agent("heir")
    make_driver(zombie).run(0, FIRST)
    partition = zombie.partition(config)
    make_driver(heir).run(1, SECOND)
    known = partition._state.meta.caught_up_ms  # type: ignore[union-attr]
    partition.maintain(time.monotonic() + 10_000)
    state = partition._state
    assert state is None or state.meta is None or state.meta.caught_up_ms == known
    # The owner may, and its store is flushed.
    owner = heir.partition(config)
    until(lambda: int(time.time() * 1000) > owner._state.meta.caught_up_ms, "the clock goes on")  # type: ignore[union-attr]
    before = owner._state.meta.caught_up_ms  # type: ignore[union-attr]
    owner.maintain(time.monotonic() + 10_000)
    assert owner.status()["phase"] == "ACTIVE"
    assert owner._state.meta.caught_up_ms > before  # type: ignore[union-attr]


def test_a_restarted_agent_does_not_obey_an_old_driver(make_agent: Any, make_driver: Any, config: Any) -> None:
    """It has forgotten every epoch; the control topic has not."""
    agent = make_agent()
    old = make_driver(agent)
    old.run(0, FIRST)
    new = make_driver(agent)
    agent.stop()
    agent = make_agent()
    with pytest.raises(StaleEpochError):
        agent.client.claim(config, identity_of(config), old.epoch, [0], 10)
    assert agent.client.status(config)[0]["phase"] == "CLOSED"
    claims = [message for message in committed(config) if message.key() == CLAIM]
    [status] = agent.client.claim(config, identity_of(config), new.epoch, [0], 10)
    assert (status["phase"], status["epoch"]) == ("ACTIVE", new.epoch)
    assert len([message for message in committed(config) if message.key() == CLAIM]) == len(claims) + 1


def test_a_new_driver_that_comes_during_a_restore(
    agent: LocalAgent, make_driver: Any, faults: Path, config: StoreConfig
) -> None:
    """The restore for the old driver ends, but not with a partition that obeys the old driver."""
    make_driver(agent).run(0, FIRST)
    agent.client.release(config)
    old = make_driver(agent)
    arm(faults, "claim.before_replay", "hold")
    agent.client.claim(config, identity_of(config), old.epoch, [0], 0.0)
    until((faults / "claim.before_replay.held").exists, "the restore is held")
    new = make_driver(agent)
    agent.client.open_batch(config, "q", 1, new.epoch, "token", [0])
    (faults / "claim.before_replay.held").unlink()
    until(lambda: agent.client.status(config)[0]["phase"] == "CLOSED", "the older one's claim is dropped")
    with pytest.raises(StaleEpochError):
        old.gate(1)
    model = Model()
    model.run(FIRST)
    assert new.run(1, SECOND) == model.run(SECOND)


def test_a_read_that_is_catching_up_gives_way_to_a_driver(
    make_agent: Any, make_driver: Any, config: StoreConfig, faults: Path
) -> None:
    """A look at the state may start a long rebuild; a batch must not wait for it, nor take the agent for dead."""
    first, second, model = make_agent("first"), make_agent("second"), Model()
    assert make_driver(first).run(0, FIRST) == model.run(FIRST)
    heir = make_driver(second)
    arm(faults, "replay.between_chunks", "hold")
    held = faults / "replay.between_chunks.held"
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(dump, second.client, config)
        until(held.exists, "the read is catching up")
        batch = pool.submit(heir.run, 1, SECOND)
        until(lambda: second.partition(config)._drivers_waiting, "the driver wants the partition")
        held.unlink()
        with pytest.raises(StaleClaimError, match="read again later"):
            reading.result(WAIT_SECONDS)
        assert batch.result(WAIT_SECONDS) == model.run(SECOND)
    assert dump(second.client, config) == model.entries


def test_a_partition_that_becomes_ready_too_late_is_told_of_the_batch(
    agent: LocalAgent, make_driver: Any, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ready when it was its turn, ready when the statuses are taken: the gate must not open on that."""
    driver, model = make_driver(agent), Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    partition = agent.partition(config)
    told = partition.open_batch
    answers = iter([False])
    monkeypatch.setattr(partition, "open_batch", lambda batch: next(answers, None) is None and told(batch))
    assert driver.run(1, SECOND) == model.run(SECOND)
    assert next(answers, None) is None
