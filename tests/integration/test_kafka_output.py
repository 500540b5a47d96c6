"""Output rows for a topic: whatever dies, a read_committed consumer sees each of them once, and no other."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation

from changelog_state.agent.staging import StagingBudget
from changelog_state.broker import EmbeddedBroker, embedded_broker
from changelog_state.changelog import outputs
from changelog_state.codec.headers import pack_headers
from changelog_state.codec.partitioner import kafka_partition
from changelog_state.config import StoreConfig
from changelog_state.errors import OutputSchemaError, OutputTopicError
from changelog_state.faults import InjectedFaultError, arm
from tests.support.driver import AgentProcess, Driver, Event, LocalAgent, Model
from tests.support.output_topic import OutputTopic
from tests.support.polling import until
from tests.support.protocol import FIRST, SECOND, markers, send_commit

pytestmark = pytest.mark.kafka

AGENT_DIES = [
    "stage.before_seal",
    "stage.after_seal",
    "commit.before_transaction",
    "commit.in_transaction",
    "commit.in_outputs",
    "commit.before_kafka_commit",
    "commit.after_kafka_commit",
    "store.between_chunks",
    "commit.after_local_write",
]


@pytest.fixture
def topic(broker: EmbeddedBroker) -> OutputTopic:
    return OutputTopic(broker.bootstrap_servers)


def as_output(rows: list[tuple[Any, ...]]) -> list[tuple[str, str]]:
    return [(row[0], repr(row)) for row in rows]


def look_only(key: str, amounts: list[int | None], state: Any) -> tuple[Any, ...]:
    return key, state.get("total"), len(amounts)


class Expected:
    """All rows of all batches, and the state behind them."""

    def __init__(self) -> None:
        self.model = Model()
        self._by_key: dict[str, list[str]] = defaultdict(list)

    def run(self, events: list[Event]) -> list[tuple[Any, ...]]:
        rows = self.model.run(events)
        for key, text in as_output(rows):
            self._by_key[key].append(text)
        return rows

    def check(self, topic: OutputTopic) -> None:
        found: dict[str, list[str]] = defaultdict(list)
        for key, text in topic.rows():
            found[key].append(text)
        assert found == self._by_key, "each row once, those of a key in the order of the batches"


def test_each_row_once_wherever_the_agent_dies(
    pair: StoreConfig, process: AgentProcess, faults: Path, make_driver: Callable[..., Driver], topic: OutputTopic
) -> None:
    """One batch per fault point: fresh, and again by the next driver."""
    expected = Expected()
    driver = make_driver(process, config=pair, output_topic=topic.name, chunk=2)
    for batch, point in enumerate(AGENT_DIES):
        events: list[Event] = [(f"k{n}", batch + n) for n in range(12)] + [(f"k{batch}", None), (f"new{batch}", 0)]
        rows = expected.run(events)
        arm(faults, point, "kill 2" if batch % 2 else "kill")
        assert driver.run(batch, events) == rows, point
        assert (faults / f"{point}.fired").exists(), "the fault point was not reached"
        driver = make_driver(process, config=pair, output_topic=topic.name, chunk=2)
        assert driver.run(batch, events) == rows, f"{point}, replayed"
        assert all(answer == {"replayed": True, "same": True} for answer in driver.answers.values())
        expected.check(topic)
    assert driver.dump(process.client) == expected.model.entries


def test_a_batch_of_which_one_partition_is_committed(
    pair: StoreConfig, agent: LocalAgent, faults: Path, make_driver: Callable[..., Driver], topic: OutputTopic
) -> None:
    expected = Expected()
    events: list[Event] = [(f"k{n}", n) for n in range(20)]
    rows = expected.run(events)
    arm(faults, "driver.commit_one", "raise 2")
    with pytest.raises(InjectedFaultError):
        make_driver(agent, config=pair, output_topic=topic.name).run(0, events)
    # The driver that has failed did not wait for the other partition's commit.
    assert len(until(topic.rows, "one partition's rows")) < len(rows)
    heir = make_driver(agent, config=pair, output_topic=topic.name)
    assert heir.run(0, events) == rows
    assert Counter(answer["replayed"] for answer in heir.answers.values()) == {True: 1, False: 1}
    expected.check(topic)


def test_rows_without_any_change_of_state(
    make_agent: Any, make_driver: Callable[..., Driver], config: StoreConfig, topic: OutputTopic
) -> None:
    """They need a marker as well: else a replay would put them out again."""
    first, second = make_agent("first"), make_agent("second")
    rows = make_driver(first, function=look_only, output_topic=topic.name).run(0, FIRST)
    assert len(markers(config)) == 1
    for agent in (first, second):  # the second one has it from the log
        heir = make_driver(agent, function=look_only, output_topic=topic.name)
        assert heir.run(0, FIRST) == rows
        assert heir.answers[0] == {"replayed": True, "same": True}
    assert sorted(topic.rows()) == sorted(as_output(rows))
    assert len(markers(config)) == 1


def test_a_replay_with_other_rows_is_noticed(
    agent: LocalAgent, make_driver: Callable[..., Driver], topic: OutputTopic
) -> None:
    rows = make_driver(agent, function=look_only, output_topic=topic.name).run(0, FIRST)
    other = make_driver(agent, function=lambda key, *_: (key, "other"), output_topic=topic.name)
    other.run(0, FIRST)
    assert other.answers[0] == {"replayed": True, "same": False}
    assert sorted(topic.rows()) == sorted(as_output(rows)), "the first ones stand"


def test_only_the_attempt_that_is_committed_counts(
    agent: LocalAgent, make_driver: Callable[..., Driver], topic: OutputTopic
) -> None:
    driver = make_driver(agent, output_topic=topic.name)
    gate = driver.gate(0)
    driver.record(gate, 0)
    first, second, cut = (driver.attempt(gate, FIRST).get() for _ in range(3))
    cut._put_out(cut.rows)
    cut.cut()
    first.stage()
    driver.commit(gate, [second.stage()])
    assert sorted(topic.rows()) == sorted(as_output(second.rows))


def test_rows_beyond_the_budget_are_spilled(
    agent: LocalAgent, make_driver: Callable[..., Driver], config: StoreConfig, topic: OutputTopic
) -> None:
    spill_dir = agent.registry._directory.spill_dir
    budget = StagingBudget(30_000, spill_dir)
    driver = make_driver(agent, chunk=100, output_topic=topic.name)
    driver.gate(0)
    agent.partition(config)._desk._budget = budget
    events: list[Event] = [(f"k{number:06}", number) for number in range(3_000)]
    gate = driver.gate(0)
    driver.record(gate, 0)
    attempt = driver.attempt(gate, events).get()
    ticket = attempt.stage(100)
    assert len(list(spill_dir.iterdir())) == 2, "changes, and rows"
    assert budget.used_bytes <= budget.limit_bytes
    driver.commit(gate, [ticket])
    assert sorted(topic.rows()) == sorted(as_output(attempt.rows))
    assert (list(spill_dir.iterdir()), budget.used_bytes) == ([], 0)


def test_keys_are_where_java_puts_them_and_headers_arrive(
    agent: LocalAgent, make_driver: Callable[..., Driver], broker: EmbeddedBroker
) -> None:
    topic = OutputTopic(broker.bootstrap_servers, partitions=7)
    driver = make_driver(agent, output_topic=topic.name)
    gate = driver.gate(0)
    driver.record(gate, 0)
    attempt = driver.attempt(gate, []).get()
    keys = [*(f"key-{n}".encode() * (n % 4) for n in range(200)), None]
    plain = pa.nulls(len(keys), pa.binary())
    attempt._session.output(topic.name, pa.array(keys, pa.binary()), plain, plain)
    headers = [("trace", b"\xff\0"), ("empty", None), ("trace", b"2")]
    packed = [pa.array([column], pa.binary()) for column in (b"k", b"v", pack_headers(headers))]
    attempt._session.output(topic.name, *packed)
    driver.commit(gate, [attempt.stage()])
    messages = topic.messages()
    assert Counter(message.key() for message in messages) == Counter([*keys, b"k"])
    for message in messages:
        if message.key() is not None:
            assert message.partition() == kafka_partition(message.key(), 7), message.key()
    assert [(m.key(), m.value(), m.headers()) for m in messages if m.headers()] == [(b"k", b"v", headers)]
    assert all(message.value() is None for message in messages if not message.headers())


def test_a_topic_that_is_gone_by_the_commit(
    agent: LocalAgent,
    make_driver: Callable[..., Driver],
    config: StoreConfig,
    topic: OutputTopic,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = make_driver(agent, output_topic=topic.name)
    model = Model()
    driver.run(0, FIRST)
    model.run(FIRST)
    gate = driver.gate(1)
    driver.record(gate, 1)
    ticket = driver.attempt(gate, SECOND).get().stage()
    topic.delete()
    agent.partition(config)._claimed.writer._checked_topics.clear()  # type: ignore[union-attr]
    patience = outputs._APPEAR_SECONDS
    monkeypatch.setattr(outputs, "_APPEAR_SECONDS", 0.0)
    with pytest.raises(OutputTopicError, match="does not exist; create it"):
        send_commit(agent, gate, ticket)
    monkeypatch.setattr(outputs, "_APPEAR_SECONDS", patience)
    assert driver.dump(agent.client) == model.entries
    assert len(markers(config)) == 1
    topic.create()
    assert driver.run(1, SECOND) == (rows := model.run(SECOND))
    assert sorted(topic.rows()) == sorted(as_output(rows))
    assert driver.dump(agent.client) == model.entries


def test_a_record_that_the_topic_does_not_take(
    agent: LocalAgent, make_driver: Callable[..., Driver], config: StoreConfig, broker: EmbeddedBroker
) -> None:
    """Tasks look after that; but a topic's settings can change under them."""
    topic = OutputTopic(broker.bootstrap_servers, max_message_bytes="2000")

    def long(key: str, amounts: Any, state: Any) -> tuple[Any, ...]:
        state.set("total", len(amounts))
        return key, random.Random(7).randbytes(amounts[0] // 2).hex()

    driver = make_driver(agent, function=long, output_topic=topic.name)
    with pytest.raises(OutputTopicError, match="too large; raise its max.message.bytes"):
        driver.run(0, [("a", 10_000)])
    assert (driver.dump(agent.client), topic.rows(), markers(config)) == ({}, [], [])
    with pytest.raises(OutputSchemaError, match=f"is too large for topic {topic.name}"):
        driver.run(0, [("a", 17 * 1024 * 1024)])  # more than the client takes
    rows = driver.run(0, [("a", 10)])
    assert topic.rows() == as_output(rows)


@pytest.fixture
def guarded_broker() -> Iterator[EmbeddedBroker]:
    """One that asks who may do what."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    with embedded_broker(properties=settings) as started:
        yield started


def test_a_topic_that_must_not_be_written(
    guarded_broker: EmbeddedBroker, agent: LocalAgent, make_driver: Callable[..., Driver]
) -> None:
    """The client tells the reason only when it is asked to commit; it is not asked to before it has failed."""
    topic = OutputTopic(guarded_broker.bootstrap_servers)
    topic.permit(AclOperation.DESCRIBE)
    config = StoreConfig("guarded", "totals", guarded_broker.bootstrap_servers, 1)
    driver = make_driver(agent, config=config, output_topic=topic.name)
    with pytest.raises(OutputTopicError, match=r"it is not allowed; give the agents' user the right to write"):
        driver.run(0, FIRST)
    assert driver.dump(agent.client) == {}
    assert markers(config) == []
    topic.permit(AclOperation.ALL)
    rows = driver.run(0, FIRST)
    assert sorted(topic.rows()) == sorted(as_output(rows))
