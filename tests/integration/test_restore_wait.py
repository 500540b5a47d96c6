"""While the driver waits for a restore: who is asked for what, what is told, and how it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from changelog_state.broker import EmbeddedBroker
from changelog_state.changelog import reader as reader_module
from changelog_state.config import StoreConfig
from changelog_state.errors import RestoreTimeoutError
from changelog_state.faults import arm
from restore.bulk_pool import BulkPool
from tests.support.driver import AgentProcess, Driver, Event, LocalAgent, Model, identity_of
from tests.support.polling import until
from tests.support.recorder import Recorder

pytestmark = pytest.mark.kafka

HELD = "replay.between_chunks"
EVENTS: list[Event] = [(f"k{number}", number) for number in range(500)]


@pytest.fixture
def config(broker: EmbeddedBroker, application: str) -> StoreConfig:
    return StoreConfig(application, "totals", broker.bootstrap_servers, 1)


@pytest.fixture
def make_agent(tmp_path: Path, faults: Path) -> Iterator[Callable[..., LocalAgent]]:
    made: list[LocalAgent] = []

    def make(name: str = "state") -> LocalAgent:
        made.append(LocalAgent(tmp_path / name))
        return made[-1]

    yield make
    for held in faults.glob("*.held"):
        held.unlink(missing_ok=True)
    for agent in made:
        agent.stop()


@pytest.fixture
def make_driver(config: StoreConfig) -> Iterator[Callable[..., Driver]]:
    made: list[Driver] = []

    def make(*agents: LocalAgent | AgentProcess, config: StoreConfig = config, **settings: Any) -> Driver:
        made.append(Driver(config, lambda: [agent.client for agent in agents], **settings))
        return made[-1]

    yield make
    for driver in made:
        driver.close()


def test_a_claim_that_is_held_up_leaves_room_for_the_others(
    make_agent: Any, make_driver: Any, config: StoreConfig, faults: Path
) -> None:
    """A driver asks again and again; each request must not take another of the agent's few threads."""
    wide = replace(config, partitions=10)
    agent = make_agent()
    driver = make_driver(agent, config=wide)
    arm(faults, "claim.before_replay", "hold")
    held = faults / "claim.before_replay.held"
    agent.client.claim(wide, identity_of(wide), driver.epoch, [0], 0.0)
    until(held.exists, "the claim is held up")
    for _ in range(10):
        agent.client.claim(wide, identity_of(wide), driver.epoch, [0], 0.0)
    statuses = agent.client.claim(wide, identity_of(wide), driver.epoch, list(range(10)), 0.0)
    assert [status["claim_pending"] for status in statuses] == [True] * 10
    until(
        lambda: Counter(s["phase"] for s in agent.client.status(wide)) == {"RESTORING": 1, "ACTIVE": 9},
        "the others are ready",
    )
    held.unlink()
    assert sorted(driver.gate(0).owners) == list(range(10))


def test_in_the_steady_state_the_gate_is_one_request(make_agent: Any, make_driver: Any) -> None:
    class Counting:
        def __init__(self, client: Any) -> None:
            self._client = client
            self.address = client.address
            self.calls: list[str] = []

        def __getattr__(self, name: str) -> Any:
            self.calls.append(name)
            return getattr(self._client, name)

    agent = make_agent()
    agent.client = Counting(agent.client)
    recorder = Recorder()
    driver = make_driver(agent, listener=recorder)
    driver.run(0, EVENTS[:3])
    agent.client.calls.clear()
    recorder.events.clear()
    driver.gate(1)
    assert agent.client.calls == ["open_batch"]
    assert recorder.events == []


def test_the_memory_for_a_restore_reaches_the_workers(
    make_agent: Any, make_driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers together have what the driver said."""
    allowed: list[int] = []

    def spy(pool: BulkPool, memory_mb: int) -> None:
        original(pool, memory_mb)
        allowed.append(pool.size * pool.worker_bytes)

    original = BulkPool.allow
    monkeypatch.setattr(BulkPool, "allow", spy)
    make_driver(make_agent(), restore_memory_mb=77).gate(0)
    assert set(allowed) == {77 * 1024 * 1024}


def test_a_failed_restore_is_told_and_tried_again(make_agent: Any, make_driver: Any, faults: Path) -> None:
    first, second = make_agent("first"), make_agent("second")
    make_driver(first).run(0, EVENTS)
    recorder = Recorder()
    arm(faults, HELD, "raise")
    make_driver(second, listener=recorder).gate(1)
    assert recorder.kinds() == ["start", "failed", "start", "end"]
    assert f"injected fault at {HELD}" in str(recorder.errors[0])
    ended = recorder.of("end")[0]
    assert (ended.fraction, ended.phase, ended.eta_seconds) == (1.0, "ACTIVE", 0.0)


def test_the_deadline_and_a_retry_that_goes_on_from_there(
    make_agent: Any, make_driver: Any, faults: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_MOST_READ", 50)
    first, second = make_agent("first"), make_agent("second")
    model = Model()
    assert make_driver(first).run(0, EVENTS) == model.run(EVENTS)
    arm(faults, HELD, "hold 4")
    recorder = Recorder()
    impatient = make_driver(second, timeout_seconds=1.0, listener=recorder)
    with pytest.raises(RestoreTimeoutError) as caught:
        impatient.gate(1)
    stood = recorder.events[-1][1]
    assert 0 < stood.position < stood.end
    assert f"partition 0 is RESTORING at position {stood.position} of end offset {stood.end}" in str(caught.value)
    assert recorder.kinds() == ["start"], "the agent is still at it"
    patient = make_driver(second)
    second.client.open_batch(
        patient.config, "q", 1, patient.epoch, "t", [0]
    )  # the old driver's restore ends for nobody
    (faults / f"{HELD}.held").unlink()
    assert patient.run(1, [("k1", 1)]) == model.run([("k1", 1)])
    [status] = second.client.status(patient.config)
    assert status["restore"]["start"] >= stood.position
    assert patient.dump(second.client) == model.entries


def test_an_agent_that_dies_in_the_middle(
    make_driver: Any, faults: Path, config: StoreConfig, tmp_path: Path, make_agent: Any
) -> None:
    """Its successor on the same disk goes on from what was durable, and the listener hears of both."""
    process = AgentProcess(tmp_path / "process")
    model = Model()
    try:
        assert make_driver(process).run(0, EVENTS) == model.run(EVENTS)
        [status] = process.client.status(config)
        process.client.release(config)  # closing the store makes its position durable
        elsewhere = make_driver(make_agent())
        assert elsewhere.run(1, EVENTS) == model.run(EVENTS)
        arm(faults, HELD, "hold")
        recorder = Recorder()
        driver = make_driver(process, listener=recorder)
        with ThreadPoolExecutor(1) as pool:
            batch = pool.submit(driver.run, 2, EVENTS)
            until((faults / f"{HELD}.held").exists, "the restore is held up")
            until(lambda: recorder.kinds() == ["start"], "the listener has heard of it")
            process.kill()
            assert batch.result(60) == model.run(EVENTS)
        assert process.starts == 2
        assert recorder.kinds() == ["start", "suspended", "start", "end"]
        begun, again = recorder.of("start")
        assert begun.start == status["position"] > 0
        assert begun.start <= again.start <= recorder.of("suspended")[0].position
        assert driver.dump(process.client) == model.entries
    finally:
        process.kill()


def test_a_listener_that_raises_does_not_fail_the_batch(
    make_agent: Any, make_driver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Clumsy(Recorder):
        def on_end(self, figures: Any) -> None:
            raise ValueError("clumsy")

    make_driver(make_agent(), listener=Clumsy()).gate(0)
    [record] = [record for record in caplog.records if record.name == "restore.listener"]
    assert record.exc_info is not None
    assert "clumsy" in str(record.exc_info[1])
