"""Something fails without the process dying: a write, a commit whose outcome is not known, a record."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from changelog_state.agent.staging import StagingBudget
from changelog_state.broker import EmbeddedBroker, embedded_broker
from changelog_state.changelog import writer as writer_module
from changelog_state.changelog.writer import IndeterminateCommitError
from changelog_state.codec.keys import record_key
from changelog_state.codec.kinds import DATA
from changelog_state.config import StoreConfig
from changelog_state.errors import (
    PartitionPoisonedError,
    StaleClaimError,
    StoreError,
    ValueEncodingError,
)
from changelog_state.faults import arm
from restore.coordinator import BatchLostError
from tests.support.driver import (
    CODEC,
    LocalAgent,
    Model,
)
from tests.support.polling import until
from tests.support.protocol import FIRST, SECOND, WAIT_SECONDS, committed, markers, send_commit

pytestmark = pytest.mark.kafka


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
    agent.partition(config)._desk._budget = StagingBudget(0, agent.registry._directory.spill_dir)
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
