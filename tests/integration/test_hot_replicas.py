"""Replicas that tail the changelog: what they have, what taking over costs, and who is told what."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import restore.hot_replica
from changelog_state.codec.keys import split_record_key
from changelog_state.codec.kinds import CLAIM
from changelog_state.config import StoreConfig
from changelog_state.errors import AgentUnavailableError, CorruptStoreError, StaleClaimError
from changelog_state.faults import arm
from changelog_state.state.ttl import decode_visible
from changelog_state.store.base import next_prefix
from tests.support.driver import CODEC, DATA, Event, LocalAgent, Model, dump, home_of
from tests.support.polling import until
from tests.support.protocol import FIRST, SECOND, committed, markers

pytestmark = pytest.mark.kafka


def status_of(agent: LocalAgent, config: StoreConfig, partition: int = 0) -> dict[str, Any]:
    return agent.partition(config, partition).status()


def hot(agent: LocalAgent, config: StoreConfig, batch: int, partition: int = 0) -> bool:
    """Whether it follows, and has this batch."""
    status = status_of(agent, config, partition)
    return status["phase"] == "FOLLOWING" and status["follower"] is not None and status["last_batch"] == batch


def stale_totals(agent: LocalAgent, config: StoreConfig) -> dict[tuple[str, str], Any]:
    entries = agent.client.scan(config, 0, DATA, next_prefix(DATA), 1_000_000, stale_ok=True)
    return {
        (split_record_key(CODEC, key)[1], split_record_key(CODEC, key)[2].decode()): decode_visible(value, 0)
        for key, value in entries
    }


@pytest.fixture
def two(make_agent: Any) -> tuple[LocalAgent, LocalAgent]:
    return make_agent("one"), make_agent("two")


def roles(agents: tuple[LocalAgent, ...], config: StoreConfig, partition: int = 0) -> tuple[LocalAgent, LocalAgent]:
    """The owner, and another one."""
    owner = next(agent for agent in agents if status_of(agent, config, partition)["phase"] == "ACTIVE")
    return owner, next(agent for agent in agents if agent is not owner)


def test_a_replica_has_every_batch_soon(
    two: tuple[LocalAgent, LocalAgent], make_driver: Any, config: StoreConfig
) -> None:
    driver, model = make_driver(*two, standby_replicas=1), Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    _, replica = roles(two, config)
    until(lambda: hot(replica, config, 0), "the replica has batch 0")
    for batch, events in enumerate([SECOND, [("a", 5), ("new", None)], [("z", 1)]], 1):
        assert driver.run(batch, events) == model.run(events)
        until(lambda batch=batch: hot(replica, config, batch), f"the replica has batch {batch}")
        assert stale_totals(replica, config) == model.entries
    until(lambda: status_of(replica, config)["follower"]["lag_records"] == 0, "nothing is missing")
    assert status_of(replica, config)["follower"]["lag_seconds"] == 0.0
    assert status_of(replica, config)["replayable"], "its images of the last batch are complete"
    driver.coordinator.clear()
    until(lambda: stale_totals(replica, config) == {}, "a cleared store is cleared there too")


def test_without_replicas_nobody_follows(
    two: tuple[LocalAgent, LocalAgent], make_driver: Any, config: StoreConfig
) -> None:
    driver = make_driver(*two)
    driver.run(0, FIRST)
    driver.coordinator._steward.round()
    assert status_of(roles(two, config)[1], config)["phase"] == "CLOSED"


def test_a_replica_takes_over_without_reading_what_it_has(
    two: tuple[LocalAgent, LocalAgent], make_driver: Any, config: StoreConfig
) -> None:
    driver, model = make_driver(*two, standby_replicas=1), Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    many: list[Event] = [(f"key-{number}", number) for number in range(2_000)]
    assert driver.run(1, many) == model.run(many)
    owner, replica = roles(two, config)
    until(lambda: hot(replica, config, 1), "the replica has batch 1")
    before = status_of(replica, config)["position"]
    owner.stop()
    assert driver.run(2, SECOND) == model.run(SECOND)
    status = status_of(replica, config)
    assert status["phase"] == "ACTIVE"
    assert status["restore"]["start"] >= before
    assert status["restore"]["records"] <= 10, "the previous claim's records at the most"
    assert driver.dump(replica.client) == model.entries


def test_the_last_batch_can_be_replayed_where_it_was_only_followed(
    two: tuple[LocalAgent, LocalAgent], make_driver: Any, config: StoreConfig
) -> None:
    driver, model = make_driver(*two, standby_replicas=1), Model()
    driver.run(0, FIRST)
    model.run(FIRST)
    rows = driver.run(1, SECOND)
    assert rows == model.run(SECOND)
    owner, replica = roles(two, config)
    until(lambda: hot(replica, config, 1), "the replica has batch 1")
    owner.stop()
    assert driver.run(1, SECOND) == rows, "the same rows, from before-images"
    assert driver.answers[0] == {"replayed": True, "same": True}
    assert len(markers(config)) == 2
    assert driver.dump(replica.client) == model.entries


def test_a_replica_shows_whole_transactions_only(
    two: tuple[LocalAgent, LocalAgent], make_driver: Any, config: StoreConfig
) -> None:
    """Every batch adds one to every key: whoever reads sees equal totals, whenever it is."""
    keys = [f"key-{number}" for number in range(3_000)]
    driver = make_driver(*two, standby_replicas=1)
    driver.run(0, [(key, 1) for key in keys])
    _, replica = roles(two, config)
    until(lambda: hot(replica, config, 0), "the replica has batch 0")
    seen: set[frozenset[int]] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(frozenset(stale_totals(replica, config).values()))

    looking = threading.Thread(target=look)
    looking.start()
    for batch in range(1, 8):
        driver.run(batch, [(key, 1) for key in keys])
    until(lambda: hot(replica, config, 7), "the replica has batch 7")
    done.set()
    looking.join()
    assert all(len(totals) == 1 for totals in seen), seen
    assert len(seen) > 1


def test_a_transaction_too_large_to_be_held(
    two: tuple[LocalAgent, LocalAgent], make_driver: Any, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore.hot_replica, "_MOST_PENDING_BYTES", 1_000)
    monkeypatch.setattr(restore.hot_replica, "_MOST_RECORDS", 50)
    driver, model = make_driver(*two, standby_replicas=1), Model()
    driver.run(0, FIRST)
    model.run(FIRST)
    owner, replica = roles(two, config)
    until(lambda: hot(replica, config, 0), "the replica has batch 0")
    many: list[Event] = [(f"key-{number}", number) for number in range(3_000)]
    rows = driver.run(1, many)
    assert rows == model.run(many)
    until(lambda: hot(replica, config, 1), "the replica has batch 1")
    assert stale_totals(replica, config) == model.entries
    assert driver.run(2, SECOND) == model.run(SECOND)
    until(lambda: hot(replica, config, 2), "and goes on behind it")
    assert status_of(replica, config)["replayable"]
    owner.stop()
    assert driver.run(3, FIRST) == model.run(FIRST)


def test_a_fresh_read_of_a_replica_has_everything(
    two: tuple[LocalAgent, LocalAgent], make_driver: Any, config: StoreConfig, faults: Path
) -> None:
    """Held back, it answers ``stale_ok`` with the lag; otherwise it first gets to the end, or says that it cannot."""
    driver, model = make_driver(*two, standby_replicas=1), Model()
    driver.run(0, FIRST)
    model.run(FIRST)
    _, replica = roles(two, config)
    until(lambda: hot(replica, config, 0), "the replica has batch 0")
    arm(faults, "replica.between_transactions", "hold")
    old = model.entries
    driver.run(1, SECOND)
    model.run(SECOND)
    driver.run(2, [("a", 1)])
    model.run([("a", 1)])
    held = faults / "replica.between_transactions.held"
    until(held.exists, "the replica is held behind batch 1")
    assert stale_totals(replica, config) not in (old, model.entries)
    key = DATA + CODEC.encode("a") + b"total"
    _, lag = replica.client.read_with_lag(config, 0, [key], stale_ok=True)
    assert lag["phase"] == "FOLLOWING"
    held.unlink()
    assert dump(replica.client, config) == model.entries


def test_a_read_does_not_wait_for_ever(
    two: tuple[LocalAgent, LocalAgent],
    make_driver: Any,
    config: StoreConfig,
    faults: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("changelog_state.agent.partition._FRESH_SECONDS", 0.3)
    driver = make_driver(*two, standby_replicas=1)
    driver.run(0, FIRST)
    _, replica = roles(two, config)
    until(lambda: hot(replica, config, 0), "the replica has batch 0")
    arm(faults, "replica.between_transactions", "hold")
    driver.run(1, SECOND)
    driver.run(2, FIRST)
    until((faults / "replica.between_transactions.held").exists, "the replica is held")
    with pytest.raises(StaleClaimError, match="stale_ok"):
        dump(replica.client, config)


def test_an_owner_that_was_replaced_is_told(make_agent: Any, make_driver: Any, config: StoreConfig) -> None:
    """Cut off from the driver and from nobody else, it goes on believing; the driver sees it again and tells it."""
    one, two = make_agent("one"), make_agent("two")
    reachable = [one, two]

    class _Cut:
        """A driver's line to an agent, which can be cut."""

        def __init__(self, agent: LocalAgent) -> None:
            self._agent = agent
            self.address = agent.client.address

        def __getattr__(self, name: str) -> Any:
            if self._agent not in reachable:
                raise AgentUnavailableError(f"{self._agent.registry.host} is cut off")
            return getattr(self._agent.client, name)

    lines = [_Cut(one), _Cut(two)]
    driver, model = make_driver(config=config), Model()
    driver.coordinator._agents = lambda: lines
    assert driver.run(0, FIRST) == model.run(FIRST)
    owner, other = roles((one, two), config)
    reachable.remove(owner)
    assert driver.run(1, SECOND) == model.run(SECOND)
    assert status_of(owner, config)["phase"] == "ACTIVE", "it does not know"
    reachable.append(owner)
    until(lambda: status_of(owner, config)["phase"] == "CLOSED", "it is told that it was replaced")
    # The successor goes, and the first one is the owner again: with everything that it has missed.
    reachable.remove(other)
    more: list[Event] = [("a", 100), ("gone", 1)]
    assert driver.run(2, more) == model.run(more)
    assert dump(owner.client, config) == model.entries


def test_an_owner_that_was_replaced_is_not_believed(make_agent: Any, make_driver: Any, config: StoreConfig) -> None:
    """Its successor is gone before it was told: at the same epoch, its claim is not the latest, and it restores."""
    one, two = make_agent("one"), make_agent("two")
    driver, model = make_driver(one, config=config), Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    driver.coordinator._agents = lambda: [two.client]
    driver.coordinator.forget_agents()
    assert driver.run(1, SECOND) == model.run(SECOND)
    driver.coordinator._agents = lambda: [one.client]
    driver.coordinator.forget_agents()
    reads_only = driver.gate(2)
    assert driver.attempt(reads_only, [("a", 0)]).get().rows == [("a", 11, 11)]
    assert driver.dump(one.client) == model.entries
    claims = [message for message in committed(config) if message.key() == CLAIM]
    assert len(claims) == 3, "the first one has claimed it again"


def test_losing_owner_and_replica_together(make_agent: Any, make_driver: Any, pair: StoreConfig) -> None:
    agents = [make_agent(name) for name in ("one", "two", "three")]
    driver, model = make_driver(*agents, config=pair, standby_replicas=1), Model()
    everywhere: list[Event] = [(f"key-{number}", 1) for number in range(20)]
    assert driver.run(0, everywhere) == model.run(everywhere)
    owner, _ = roles(tuple(agents), pair)
    others = [agent for agent in agents if agent is not owner]
    replica = until(lambda: next((a for a in others if hot(a, pair, 0)), None), "someone follows partition 0")
    owner.stop()
    replica.stop()
    assert driver.run(1, SECOND) == model.run(SECOND)
    [left] = [agent for agent in agents if agent not in (owner, replica)]
    assert driver.dump(left.client) == model.entries


def test_a_newcomer_is_warmed_up_before_it_owns_anything(
    make_agent: Any, make_driver: Any, broker: Any, application: str
) -> None:
    config = StoreConfig(application, "totals", broker.bootstrap_servers, 4)
    agents = [make_agent("one")]
    driver, model = make_driver(*agents, config=config), Model()
    driver.coordinator._steward._discover = lambda: [agent.client for agent in agents]
    events: list[Event] = [(f"key-{number}", 1) for number in range(100)]
    assert driver.run(0, events) == model.run(events)
    agents.append(make_agent("two"))
    old, new = agents
    followed = lambda: [p for p in range(4) if status_of(new, config, p)["phase"] == "FOLLOWING"]  # noqa: E731
    until(lambda: len(followed()) == 2, "it follows its share")
    assert all(status_of(old, config, p)["phase"] == "ACTIVE" for p in range(4)), "nothing has moved yet"
    moving = followed()
    until(lambda: {planned_owners(driver).get(p) for p in moving} == {new.client.address}, "it is warm")
    assert driver.run(1, events) == model.run(events)
    assert [status_of(new, config, p)["phase"] for p in moving] == ["ACTIVE", "ACTIVE"]
    assert all(status_of(new, config, p)["restore"]["records"] <= 10 for p in moving), "nothing is read twice"
    until(lambda: all(status_of(old, config, p)["phase"] == "CLOSED" for p in moving), "the old owner lets go")
    assert driver.run(2, events) == model.run(events)
    found = {key: total for agent in agents for key, total in _owned(agent, config).items()}
    assert found == model.entries


def test_a_draining_agent_loses_everything_to_others(make_agent: Any, make_driver: Any, pair: StoreConfig) -> None:
    one, two = make_agent("one"), make_agent("two")
    driver, model = make_driver(one, two, config=pair), Model()
    everywhere: list[Event] = [(f"key-{number}", 1) for number in range(20)]
    assert driver.run(0, everywhere) == model.run(everywhere)
    one.registry.draining = True
    until(lambda: any(hot(two, pair, 0, p) for p in range(2)), "the other one follows")
    until(lambda: set(planned_owners(driver).values()) == {two.client.address}, "it is warm")
    assert driver.run(1, SECOND) == model.run(SECOND)
    assert one.registry.owned == 0 or until(lambda: one.registry.owned == 0, "it owns nothing")
    assert driver.dump(two.client) == model.entries


def planned_owners(driver: Any) -> dict[int, str]:
    plan = driver.coordinator._steward.plan
    return {} if plan is None else plan.owners


def _owned(agent: LocalAgent, config: StoreConfig) -> dict[tuple[str, str], Any]:
    owned = {p for p in range(config.partitions) if status_of(agent, config, p)["phase"] == "ACTIVE"}
    found = dump(agent.client, config)
    return {place: total for place, total in found.items() if home_of(place[0], config.partitions) in owned}


def test_a_replica_whose_store_fails_is_made_again(
    two: tuple[LocalAgent, LocalAgent], make_driver: Any, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read finds it broken, while the tail is at work on it."""
    driver, model = make_driver(*two, standby_replicas=1), Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    _, replica = roles(two, config)
    until(lambda: hot(replica, config, 0), "the replica has batch 0")
    monkeypatch.setattr("restore.steward._FAILED_SECONDS", 0.1)
    store = replica.partition(config)._state.store  # type: ignore[union-attr]

    def broken(*_: Any) -> Any:
        raise CorruptStoreError("as if a block were damaged")

    monkeypatch.setattr(store, "get_many", broken)
    with pytest.raises(CorruptStoreError):
        replica.client.read_with_lag(config, 0, [b"dx"], stale_ok=True)
    assert driver.run(1, SECOND) == model.run(SECOND)
    until(lambda: hot(replica, config, 1), "it follows again, from the beginning")
    assert stale_totals(replica, config) == model.entries
