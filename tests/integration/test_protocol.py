"""The protocol between driver, tasks, agents and log, attacked step by step: and if the process dies here?"""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from changelog_state.agent.committing import MOST_LISTED_NAMES
from changelog_state.agent.messages import StagedWorkLostError
from changelog_state.agent.staging import StagingBudget
from changelog_state.broker import EmbeddedBroker, embedded_broker
from changelog_state.changelog import reader as reader_module
from changelog_state.changelog import writer as writer_module
from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.topic import delete_topics
from changelog_state.changelog.writer import IndeterminateCommitError
from changelog_state.codec.keys import record_key
from changelog_state.codec.kinds import CLAIM, DATA, MARKER
from changelog_state.config import StoreConfig
from changelog_state.errors import (
    BatchSupersededError,
    ChangelogStateError,
    CorruptStoreError,
    InvalidInputError,
    PartitionPoisonedError,
    ReplayImpossibleError,
    StaleClaimError,
    StaleEpochError,
    StoreError,
    ValueEncodingError,
)
from changelog_state.faults import arm
from changelog_state.requests import RequestHeader
from restore.coordinator import BatchLostError, Ticket
from tests.support.driver import (
    CODEC,
    AgentProcess,
    Attempt,
    Event,
    Gate,
    LocalAgent,
    Model,
    dump,
    home_of,
    identity_of,
)
from tests.support.polling import until

pytestmark = pytest.mark.kafka

FIRST: list[Event] = [("a", 1), ("b", 2), ("c", 3), ("gone", 4)]
SECOND: list[Event] = [("a", 10), ("b", 20), ("new", 5), ("gone", None)]
WAIT_SECONDS = 20.0


def send_commit(agent: LocalAgent, gate: Gate, ticket: Ticket) -> dict[str, Any]:
    """One COMMIT, without what the driver makes of its failure."""
    return agent.client.commit(gate.headers[0], ticket.stage_id, bytes.fromhex(ticket.digest))


def markers(config: StoreConfig, partition: int = 0) -> list[int]:
    """Offsets of the committed markers."""
    return [message.offset() for message in committed(config, partition) if message.key() == MARKER]


def committed(config: StoreConfig, partition: int = 0) -> list[Any]:
    with ChangelogReader(config, config.changelog_topic, partition) as reader:
        low, high = reader.bounds()
        reader.seek(low)
        found: list[Any] = []
        while reader.position() < high:
            found += reader.read(10_000)
            reader.check_progress()
    return found


# -- two attempts of one task ------------------------------------------------------------------------------

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
    assert not partition._staged
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


# -- drivers come and go -----------------------------------------------------------------------------------


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


# -- the agent's process dies ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_process(fault_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """One agent for many tests: each has an application of its own, and starting one takes a second."""
    process = AgentProcess(tmp_path_factory.mktemp("agent") / "state")
    yield process
    process.kill()


@pytest.fixture
def process(shared_process: AgentProcess, faults: Path) -> AgentProcess:
    return shared_process


@pytest.fixture
def pair(broker: EmbeddedBroker, application: str) -> StoreConfig:
    return StoreConfig(application, "totals", broker.bootstrap_servers, 2)


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


# -- something fails without the process dying -------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "replayed"),
    [
        ("commit.before_transaction", False),
        ("commit.in_transaction", False),
        ("commit.before_kafka_commit", False),
        ("commit.after_kafka_commit", True),
        ("store.between_chunks", True),
        ("commit.after_local_write", True),
    ],
)
def test_an_unexpected_error_inside_a_commit(
    point: str, replayed: bool, agent: LocalAgent, make_driver: Any, faults: Path
) -> None:
    """Once Kafka has the batch, no error of any kind may leave an owner that does not know it."""
    driver = make_driver(agent, chunk=2)
    model = Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    arm(faults, point, "raise")
    assert driver.run(1, SECOND) == model.run(SECOND)
    assert (faults / f"{point}.fired").exists()
    assert driver.answers[0]["replayed"] is replayed
    assert driver.dump(agent.client) == model.entries
    assert len(markers(driver.config)) == 2


def test_a_failed_local_write_poisons_the_partition(
    agent: LocalAgent, make_driver: Any, config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver(agent)
    model = Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    gate = driver.gate(1)
    ticket = driver.attempt(gate, SECOND).get().stage()
    partition = agent.partition(config)
    store = partition._state.store  # type: ignore[union-attr]
    with monkeypatch.context() as patched:
        patched.setattr(store, "write", lambda batch: (_ for _ in ()).throw(StoreError("no space left on device")))
        with pytest.raises(PartitionPoisonedError, match="no space left"):
            send_commit(agent, gate, ticket)
    status = partition.status()
    assert (status["phase"], status["error"]["class"]) == ("FAILED", "StoreError")
    with pytest.raises(StaleClaimError):
        driver.attempt(gate, SECOND).get()
    assert driver.run(1, SECOND) == model.run(SECOND)
    assert driver.answers[0]["replayed"], "the log had it"
    assert driver.dump(agent.client) == model.entries


def test_a_spill_file_that_is_lost_after_the_kafka_commit(
    agent: LocalAgent, make_driver: Any, config: StoreConfig, faults: Path
) -> None:
    """Spilled work is read twice. When the second reading fails, the log has the batch and the store a part of it."""
    agent.partition(config)._budget = StagingBudget(0, agent.registry._directory.spill_dir)
    driver = make_driver(agent, chunk=2)
    model = Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    gate = driver.gate(1)
    driver.record(gate, 1)
    ticket = driver.attempt(gate, SECOND).get().stage(2)
    arm(faults, "commit.after_kafka_commit", "hold")
    failed: list[BaseException] = []

    def commit() -> None:
        try:
            driver.commit(gate, [ticket])
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    until((faults / "commit.after_kafka_commit.held").exists, "the commit is held")
    for spilled in agent.registry._directory.spill_dir.iterdir():
        spilled.unlink()
    (faults / "commit.after_kafka_commit.held").unlink()
    thread.join(WAIT_SECONDS)
    assert failed
    assert isinstance(failed[0], BatchLostError)
    assert agent.partition(config).status()["phase"] == "FAILED"
    assert driver.run(1, SECOND) == model.run(SECOND)
    assert driver.dump(agent.client) == model.entries
    assert len(markers(config)) == 2


def test_an_oversized_record_commits_nothing(
    agent: LocalAgent, make_driver: Any, broker: Any, application: str
) -> None:
    config = StoreConfig(application, "small", broker.bootstrap_servers, 1, topic={"max.message.bytes": 20_000})
    driver = make_driver(agent, config=config)
    driver.run(0, FIRST)
    before = len(committed(config))
    random.seed(1)
    for size in (20_000, 25_000, 3_000_000):
        gate = driver.gate(1)
        session = driver.attempt(gate, FIRST)._session
        session.stage([record_key(DATA, CODEC.encode("a"), "total")], [b"small"], [None])
        session.stage([record_key(DATA, CODEC.encode("big"), "total")], [random.randbytes(size)], [None])
        session.stage([record_key(DATA, CODEC.encode("c"), "total")], [b"small"], [None])
        sealed = session.seal(["total"])
        with pytest.raises(ValueEncodingError, match=r"too large.*max\.message\.bytes"):
            agent.client.commit(gate.headers[0], sealed["stage_id"], bytes.fromhex(sealed["digest"]))
        assert len(committed(config)) == before
        assert agent.client.status(config)[0]["phase"] == "ACTIVE"
    model = Model()
    model.run(FIRST)
    assert driver.run(1, SECOND) == model.run(SECOND), "the partition is as usable as before"
    assert driver.dump(agent.client) == model.entries


@pytest.fixture(scope="module")
def private_broker() -> Iterator[EmbeddedBroker]:
    """One that can be stopped without stopping other tests."""
    with embedded_broker(heap_mb=256) as running:
        yield running


@pytest.mark.parametrize("how", ["paused", "killed"])
def test_a_commit_whose_outcome_is_not_known(
    how: str,
    private_broker: EmbeddedBroker,
    make_agent: Any,
    make_driver: Any,
    application: str,
    faults: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker is silent while the commit is under way. Nothing is sent again; the log decides."""
    config = StoreConfig(application, "totals", private_broker.bootstrap_servers, 1)
    agent = make_agent()
    driver = make_driver(agent, config=config)
    model = Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    gate = driver.gate(1)
    driver.record(gate, 1)
    ticket = driver.attempt(gate, SECOND).get().stage()
    monkeypatch.setattr(writer_module, "_COMMIT_SECONDS", 2.0)
    arm(faults, "commit.before_kafka_commit", "hold")
    outcome: list[BaseException] = []

    def commit() -> None:
        try:
            send_commit(agent, gate, ticket)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    until((faults / "commit.before_kafka_commit.held").exists, "the commit is held")
    if how == "killed":
        private_broker.kill()
    else:
        os.kill(private_broker.pid, signal.SIGSTOP)
    (faults / "commit.before_kafka_commit.held").unlink()
    thread.join(60)
    assert isinstance(outcome[0], IndeterminateCommitError), outcome
    assert agent.client.status(config)[0]["phase"] == "FAILED"
    if how == "killed":
        private_broker.start()
    else:
        os.kill(private_broker.pid, signal.SIGCONT)
    monkeypatch.setattr(writer_module, "_COMMIT_SECONDS", 30.0)
    heir = make_driver(agent, config=config)
    assert heir.run(1, SECOND) == model.run(SECOND)
    assert heir.dump(agent.client) == model.entries
    assert len(markers(config)) == 2
    agent.stop()


# -- the local store is not what it seems ------------------------------------------------------------------


@pytest.mark.parametrize("running", [False, True], ids=["agent restarted", "agent running"])
def test_a_recreated_changelog_that_has_grown_past_the_old_position(
    running: bool, make_agent: Any, make_driver: Any, config: StoreConfig
) -> None:
    """The old position exists in the new log, so nothing but the topic's id tells them apart."""
    agent, other = make_agent("old"), make_agent("other")
    for _ in range(3):  # so that the new store's epochs are lower than those this agent has seen
        driver = make_driver(agent)
        driver.run(0, FIRST)
    position = agent.client.status(config)[0]["position"]
    marker_offset = agent.partition(config)._state.meta.marker_offset  # type: ignore[union-attr]
    if not running:
        agent.stop()
    delete_topics(config)
    model = Model()
    new = make_driver(other)
    for batch in range(4):
        size = 20 if batch else len(FIRST) - 1  # so that no record is where the old marker was
        events: list[Event] = [(f"k{batch}-{number}", number) for number in range(size)]
        assert new.run(batch, events) == model.run(events)
    assert marker_offset not in {message.offset() for message in committed(config)}
    assert other.client.status(config)[0]["position"] > position
    if not running:
        agent = make_agent("old")
    back = make_driver(agent)
    assert back.run(4, SECOND) == model.run(SECOND)
    assert back.dump(agent.client) == model.entries


@pytest.mark.parametrize("moved", ["ahead of the log", "behind its beginning"])
def test_a_position_outside_the_log(
    moved: str, make_agent: Any, make_driver: Any, config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent()
    driver = make_driver(agent)
    model = Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    state = agent.partition(config)._state
    assert state is not None
    state.update_meta(position=10_000 if moved == "ahead of the log" else -1)
    batch = state.store.batch()
    batch.put(record_key(DATA, CODEC.encode("ghost"), "total"), b"never committed")
    state.store.write(batch)
    agent.stop()
    agent = make_agent()
    again = make_driver(agent)
    assert again.run(1, SECOND) == model.run(SECOND)
    assert again.dump(agent.client) == model.entries
    assert "outside the log" in caplog.text


def test_a_marker_that_is_not_in_the_log(
    make_agent: Any, make_driver: Any, config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Same topic, position inside, and yet another history: the record at the marker's offset tells."""
    agent = make_agent()
    model = Model()
    assert make_driver(agent).run(0, FIRST) == model.run(FIRST)
    state = agent.partition(config)._state
    assert state is not None
    batch = state.store.batch()
    batch.put(MARKER, state.marker[:-1] + b"\x00")  # type: ignore[index]
    batch.put(record_key(DATA, CODEC.encode("ghost"), "total"), b"never committed")
    state.store.write(batch)
    agent.stop()
    agent = make_agent()
    again = make_driver(agent)
    assert again.run(1, SECOND) == model.run(SECOND)
    assert again.dump(agent.client) == model.entries
    assert "marker is not in this log" in caplog.text


def test_a_store_that_was_away_for_too_long_is_rebuilt(
    make_agent: Any, make_driver: Any, config: StoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Deletions do not stay readable for ever: what was caught up too long ago may have missed one."""
    agent = make_agent()
    model = Model()
    assert make_driver(agent).run(0, FIRST) == model.run(FIRST)
    state = agent.partition(config)._state
    assert state is not None
    batch = state.store.batch()
    batch.put(record_key(DATA, CODEC.encode("ghost"), "total"), b"deleted meanwhile")
    state.store.write(batch)
    state.update_meta(caught_up_ms=int(time.time() * 1000) - 13 * 3_600_000)  # of 24 h that a deletion stays
    agent.stop()
    agent = make_agent()
    again = make_driver(agent)
    assert again.run(1, SECOND) == model.run(SECOND)
    assert again.dump(agent.client) == model.entries
    assert "missed deletions" in caplog.text


def largest_sst(state_dir: Path, config: StoreConfig) -> Path:
    found = (state_dir / "stores" / config.application / config.store).rglob("db/*.sst")
    return max(found, key=lambda path: path.stat().st_size)


# Where in a file of one batch: images come first (b), then data (d), then filter and index.
IMAGE_BLOCK, DATA_BLOCK = 0.2, 0.6


def overwrite(path: Path, where: float) -> None:
    with open(path, "r+b") as file:
        file.seek(int(path.stat().st_size * where))
        file.write(bytes(32))


@pytest.mark.parametrize(
    "damage", ["data block", "image block", "manifest", "truncated manifest", "current", "missing file"]
)
def test_a_damaged_store_is_moved_aside_and_rebuilt(
    damage: str, make_agent: Any, make_driver: Any, config: StoreConfig, tmp_path: Path
) -> None:
    agent = make_agent()
    driver = make_driver(agent)
    model = Model()
    events: list[Event] = [(f"k{number:05}", number) for number in range(3_000)]
    assert driver.run(0, events) == model.run(events)
    agent.stop()
    directory = tmp_path / "state" / "stores" / config.application / config.store / "0"
    path = largest_sst(tmp_path / "state", config)
    if damage == "data block":
        overwrite(path, DATA_BLOCK)
    elif damage == "image block":
        overwrite(path, IMAGE_BLOCK)
    elif damage == "missing file":
        path.unlink()
    elif damage == "manifest":
        overwrite(max((directory / "db").glob("MANIFEST-*")), 0.3)
    elif damage == "truncated manifest":
        manifest = max((directory / "db").glob("MANIFEST-*"))
        os.truncate(manifest, manifest.stat().st_size // 2)
    else:
        (directory / "db" / "CURRENT").write_text("MANIFEST-999999\n")
    agent = make_agent()
    again = make_driver(agent)
    more: list[Event] = [(key, 1) for key, _ in events]
    assert again.run(1, more) == model.run(more)
    assert again.dump(agent.client) == model.entries
    assert list(directory.glob("corrupt-*")), "kept for whoever wants to know why"


@pytest.mark.parametrize("by", ["get", "read", "scan", "clear"])
def test_damage_that_only_a_read_finds(
    by: str, make_agent: Any, make_driver: Any, config: StoreConfig, tmp_path: Path
) -> None:
    """An open store can go bad too. Whoever meets it hears of it, and the next claim rebuilds."""
    agent = make_agent()
    model = Model()
    events: list[Event] = [(f"k{number:05}", number) for number in range(3_000)]
    driver = make_driver(agent)
    assert driver.run(0, events) == model.run(events)
    store = agent.partition(config)._state.store  # type: ignore[union-attr]
    store.flush()
    path = largest_sst(tmp_path / "state", config)
    overwrite(path, DATA_BLOCK)
    gate = driver.gate(1)
    record_keys = [record_key(DATA, CODEC.encode(key), "total") for key, _ in events]
    meets = {
        "get": lambda: driver.attempt(gate, events).get(),
        "read": lambda: agent.client.read(config, 0, record_keys),
        "scan": lambda: driver.dump(agent.client),
        "clear": lambda: driver.coordinator.clear(),
    }
    with pytest.raises(CorruptStoreError):
        meets[by]()
    assert agent.client.status(config)[0]["phase"] == "FAILED"
    more: list[Event] = [(key, 1) for key, _ in events]
    again = make_driver(agent)
    assert again.run(1, more) == model.run(more)
    assert again.dump(agent.client) == model.entries


def test_a_restore_that_was_cut_short_goes_on(
    make_agent: Any, make_driver: Any, faults: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry begins where the first try ended; an hour's restore is not lost to a second's trouble."""
    monkeypatch.setattr(reader_module, "_MOST_READ", 50)
    first, second = make_agent("first"), make_agent("second")
    driver = make_driver(first)
    model = Model()
    events: list[Event] = [(f"k{number}", number) for number in range(500)]
    assert driver.run(0, events) == model.run(events)
    config = driver.config
    arm(faults, "replay.between_chunks", "raise 4")
    epoch = make_driver(second).epoch
    [status] = second.client.claim(config, identity_of(config), epoch, [0], WAIT_SECONDS)
    assert (status["phase"], status["restore"]["start"]) == ("FAILED", 0)
    reached = status["restore"]["position"]
    assert reached >= 100
    [status] = second.client.claim(config, identity_of(config), epoch, [0], WAIT_SECONDS)
    assert status["phase"] == "ACTIVE"
    assert status["restore"]["start"] >= reached
    assert dump(second.client, config) == model.entries
    more: list[Event] = [("k1", 1)]
    assert make_driver(second).run(0, events) == Model().run(events), "images were collected across the cut"
    assert make_driver(second).run(1, more) == model.run(more)


@pytest.mark.parametrize("point", ["claim.before_fencing", "claim.before_replay", "replay.between_chunks"])
def test_a_claim_that_fails_leaves_nothing_locked(
    point: str, agent: LocalAgent, make_driver: Any, config: StoreConfig, faults: Path
) -> None:
    """From CLOSED and from FOLLOWING, where the store is open already."""
    model = Model()
    assert make_driver(agent).run(0, FIRST) == model.run(FIRST)
    for follow in (False, True):
        agent.client.release(config)
        if follow:
            assert dump(agent.client, config) == model.entries
            assert agent.client.status(config)[0]["phase"] == "FOLLOWING"
        driver = make_driver(agent)
        arm(faults, point, "raise")
        [status] = agent.client.claim(config, identity_of(config), driver.epoch, [0], WAIT_SECONDS)
        assert status["phase"] == "FAILED"
        [status] = agent.client.claim(config, identity_of(config), driver.epoch, [0], WAIT_SECONDS)
        assert status["phase"] == "ACTIVE"
        assert driver.dump(agent.client) == model.entries


# -- compaction --------------------------------------------------------------------------------------------


def test_compaction_is_never_silently_different(
    make_agent: Any, make_driver: Any, broker: EmbeddedBroker, application: str
) -> None:
    """The values from before the last batch are compacted away: the rebuilt state is right, its replay is refused."""
    config = StoreConfig(
        application,
        "compacted",
        broker.bootstrap_servers,
        1,
        topic={
            "min.compaction.lag.ms": 0,
            "segment.bytes": 1024 * 1024,
            "min.cleanable.dirty.ratio": 0.001,
            "max.compaction.lag.ms": 200,
        },
    )
    first, second = make_agent("first"), make_agent("second")
    driver = make_driver(first, config=config)
    model = Model()
    events: list[Event] = [(f"k{number}", number) for number in range(200)]
    assert driver.run(0, events) == model.run(events)
    last = [(key, 1_000) for key, _ in events]
    assert driver.run(1, last) == model.run(last)
    [status] = first.client.status(config)
    assert status["replayable"]
    # The active segment is never compacted. A claim rolls it, once its oldest record is old enough.
    epoch = driver.epoch

    def first_values_are_gone() -> bool:
        nonlocal driver
        if driver.epoch - epoch < 40:
            driver.close()
            driver = make_driver(first, config=config)
            driver.gate(1)
        records = [message for message in committed(config) if message.key()[:1] == DATA]
        return len(records) == len(events)

    until(first_values_are_gone, "the cleaner has removed batch 0's values", 60)
    heir = make_driver(second, config=config)
    [status] = second.client.claim(config, identity_of(config), heir.epoch, [0], WAIT_SECONDS)
    assert (status["phase"], status["last_batch"], status["replayable"]) == ("ACTIVE", 1, False)
    with pytest.raises(ReplayImpossibleError, match="compacted away"):
        heir.gate(1)
    # The gate judges for everyone, but no owner may answer with values that it knows to be wrong.
    owners, _ = heir.coordinator.open_gate("q", 1, "token")
    header = RequestHeader(application, "compacted", 0, heir.epoch, owners[0].claim, "q", 1, "token")
    with pytest.raises(ReplayImpossibleError):
        Attempt(owners[0], header, last, heir.function).get()
    assert heir.dump(second.client) == model.entries
    assert heir.run(2, last) == model.run(last), "the next batch is none of its business"


def test_a_rebuilt_store_replays_while_the_log_has_what_it_needs(make_agent: Any, make_driver: Any) -> None:
    first, second = make_agent("first"), make_agent("second")
    driver = make_driver(first)
    model = Model()
    assert driver.run(0, FIRST) == model.run(FIRST)
    expected = model.run(SECOND)
    assert driver.run(1, SECOND) == expected
    assert make_driver(second).run(1, SECOND) == expected
    # And again on the first, whose own images are as good.
    assert make_driver(first).run(1, SECOND) == expected


# -- large work --------------------------------------------------------------------------------------------


def test_staged_work_beyond_the_budget_is_spilled(agent: LocalAgent, make_driver: Any, config: StoreConfig) -> None:
    spill_dir = agent.registry._directory.spill_dir
    budget = StagingBudget(40_000, spill_dir)
    driver = make_driver(agent, chunk=100)
    driver.gate(0)
    agent.partition(config)._budget = budget
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
