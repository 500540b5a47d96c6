"""Agents register in a topic of their application, and drivers find them there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from changelog_state.agent.client import AgentClient
from changelog_state.broker import EmbeddedBroker, embedded_broker
from changelog_state.changelog.agents import OLDEST_SECONDS, AgentDirectory, AgentRecord
from changelog_state.changelog.registration import RENEW_SECONDS, Registration
from changelog_state.changelog.topic import ensure_agents_topic
from changelog_state.config import ClusterConfig
from changelog_state.errors import BrokerUnavailableError, ChangelogMismatchError, ChangelogStateError
from tests.support.cluster_agent import ClusterAgent, command
from tests.support.polling import until

pytestmark = pytest.mark.kafka

BOUND_SECONDS = 60.0
"""Far above what it takes; only "bounded at all" is checked, not speed."""


@pytest.fixture
def cluster(broker: EmbeddedBroker, application: str) -> ClusterConfig:
    return ClusterConfig(application, broker.bootstrap_servers)


@pytest.fixture
def admin(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def directory(cluster: ClusterConfig) -> Iterator[AgentDirectory]:
    with closing(AgentDirectory(cluster)) as made:
        yield made


@pytest.fixture
def make_agent(cluster: ClusterConfig, tmp_path: Path) -> Iterator[Callable[..., ClusterAgent]]:
    made: list[ClusterAgent] = []

    def make(*options: str) -> ClusterAgent:
        made.append(ClusterAgent(tmp_path / f"node-{len(made)}", cluster, *options))
        return made[-1]

    yield make
    for agent in made:
        agent.kill()


def described(port: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"agent-{port}",
        "incarnation": "i",
        "address": f"grpc+tcp://127.0.0.1:{port}",
        "socket": "grpc+unix:///nowhere",
        "host": f"127.0.0.1:{port}",
        "rack": None,
        "pid": 1,
        "state_dir": "/nowhere",
        "version": "0",
        "draining": False,
    } | changes


@pytest.fixture
def register(cluster: ClusterConfig) -> Iterator[Callable[..., dict[str, Any]]]:
    """An agent's registration without the agent; returns what it describes, which may be changed."""
    made: list[Registration] = []

    def one(port: int, predecessor: str | None = None, **changes: Any) -> dict[str, Any]:
        view = described(port, **changes)
        made.append(Registration(cluster, f"127.0.0.1:{port}", lambda: dict(view)))
        made[-1].announce(predecessor)
        return view

    yield one
    for registration in made:
        registration.withdraw()


def ids(directory: AgentDirectory) -> list[str]:
    return [record.id for record in directory.read()]


# -- with real agents ----------------------------------------------------------------------------------------


def test_registers_and_withdraws(make_agent: Callable[..., ClusterAgent], directory: AgentDirectory) -> None:
    first = make_agent("--advertise", "127.0.0.1:0", "--rack", "r1").start()
    second = make_agent("--advertise", "localhost:0").start()
    found = {record.advertised: record.describe() for record in directory.read()}
    assert found == {
        f"127.0.0.1:{first.port}": first.described,
        f"localhost:{second.port}": second.described,
    }
    assert found[f"127.0.0.1:{first.port}"]["rack"] == "r1"
    assert found[f"localhost:{second.port}"]["rack"] is None
    gone = first.described["id"]
    assert first.terminate() == 0
    assert ids(directory) == [second.described["id"]], "before it has ended, it has taken itself out"
    assert gone not in ids(directory)


def test_killed_it_is_left_until_it_comes_back(
    make_agent: Callable[..., ClusterAgent], directory: AgentDirectory
) -> None:
    agent = make_agent("--advertise", "127.0.0.1:0").start()
    first, port = agent.described, agent.port
    agent.kill()
    assert ids(directory) == [first["id"]]

    agent.start("--advertise", f"127.0.0.1:{port}")
    assert ids(directory) == [agent.described["id"]], "the same address: overwritten"
    assert agent.described["incarnation"] != first["incarnation"]
    second = agent.described["id"]
    agent.kill()

    agent.start()
    assert agent.port != port
    assert ids(directory) == [agent.described["id"]], "another address: the predecessor's was taken out"
    assert second not in ids(directory)
    assert agent.terminate() == 0
    assert ids(directory) == []


def test_draining_is_announced(make_agent: Callable[..., ClusterAgent], directory: AgentDirectory) -> None:
    agent = make_agent("--advertise", "127.0.0.1:0").start()
    with closing(AgentClient(agent.address)) as client:
        client.drain()
        until(lambda: directory.read()[0].draining, "draining is seen")
        client.drain(undo=True)
        until(lambda: not directory.read()[0].draining, "its end is seen")


def test_an_agent_that_advertises_needs_an_application(tmp_path: Path) -> None:
    done = command("agent", "--state-dir", str(tmp_path), "--advertise", "127.0.0.1:0")
    assert done.returncode == 2, done.stderr
    assert "application is not given; use --application" in done.stderr


def test_no_broker_at_the_start(tmp_path: Path) -> None:
    started = time.monotonic()
    words = ["agent", "--state-dir", str(tmp_path), "--advertise", "127.0.0.1:0", "--application", "shop"]
    done = command(*words, "--bootstrap-servers", "127.0.0.1:9")
    assert time.monotonic() - started < BOUND_SECONDS
    assert done.returncode == 1, done.stderr
    assert "Kafka at 127.0.0.1:9 did not answer: could not describe topic shop-agents" in done.stderr
    assert not (tmp_path / "agent.json").exists()


# -- the topic -----------------------------------------------------------------------------------------------


def test_the_topic_is_made_as_it_must_be(cluster: ClusterConfig) -> None:
    topic = ensure_agents_topic(cluster)
    assert topic.name == f"{cluster.application}-agents"
    assert topic.partitions == 1
    assert topic.settings["cleanup.policy"] == "compact"
    assert topic.settings["message.timestamp.type"] == "LogAppendTime"
    assert ensure_agents_topic(cluster) == topic, "found, not made again"


def test_the_replication_factor_is_passed_on(cluster: ClusterConfig) -> None:
    with pytest.raises(ChangelogStateError, match="[Rr]eplication factor"):
        ensure_agents_topic(replace(cluster, topic={"replication.factor": 3}))


@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        ({"num_partitions": 2}, "has 2 partitions, expected 1"),
        ({"config": {"message.timestamp.type": "LogAppendTime"}}, "cleanup.policy=delete, expected compact"),
        ({"config": {"cleanup.policy": "compact"}}, "message.timestamp.type=CreateTime, expected LogAppendTime"),
    ],
)
def test_a_topic_that_is_another(
    new: dict[str, Any], complaint: str, cluster: ClusterConfig, admin: AdminClient
) -> None:
    settings = {"num_partitions": 1} | new
    admin.create_topics([NewTopic(cluster.agents_topic, **settings)])[cluster.agents_topic].result(15)
    with pytest.raises(ChangelogMismatchError, match=complaint):
        Registration(cluster, "127.0.0.1:1", lambda: described(1)).announce()


# -- the directory -------------------------------------------------------------------------------------------


def test_sees_what_changes(
    directory: AgentDirectory, register: Callable[..., dict[str, Any]], cluster: ClusterConfig
) -> None:
    view = register(2)
    assert directory.read() == [AgentRecord.of(described(2))]
    register(1, rack="r")
    assert [record.advertised for record in directory.read()] == ["127.0.0.1:1", "127.0.0.1:2"]
    view["draining"] = True
    until(lambda: directory.read()[1].draining, "the change is seen")
    with closing(AgentDirectory(cluster)) as another:
        assert another.read() == directory.read()


def test_for_several_threads(directory: AgentDirectory, register: Callable[..., dict[str, Any]]) -> None:
    register(1)
    wrong: list[Any] = []

    def look() -> None:
        for _ in range(20):
            found = ids(directory)
            if found[:1] != ["agent-1"]:
                wrong.append(found)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for port in range(2, 6):
        register(port)
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert ids(directory) == [f"agent-{port}" for port in range(1, 6)]


def test_cheap_when_nothing_is_new(directory: AgentDirectory, register: Callable[..., dict[str, Any]]) -> None:
    register(1)
    directory.read()
    times = []
    for _ in range(20):
        started = time.monotonic()
        directory.read()
        times.append(time.monotonic() - started)
    assert sorted(times)[10] < 0.05, "not a fetch's waiting time"


def test_renewed_again_and_again(
    cluster: ClusterConfig,
    directory: AgentDirectory,
    register: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert 4 * RENEW_SECONDS < OLDEST_SECONDS, "one that is alive is never left out"
    monkeypatch.setattr("changelog_state.changelog.registration.RENEW_SECONDS", 0.0)
    monkeypatch.setattr("changelog_state.changelog.registration._LOOK_SECONDS", 0.01)
    register(1)

    def written() -> float:
        directory.read()
        return directory._known[b"127.0.0.1:1"][1]

    first = written()
    until(lambda: written() > first, "a newer record")


def test_old_records_are_left_out(cluster: ClusterConfig, register: Callable[..., dict[str, Any]]) -> None:
    register(1)
    ahead = 0.0
    with closing(AgentDirectory(cluster, clock=lambda: time.time() + ahead)) as directory:
        assert ids(directory) == ["agent-1"]
        ahead = OLDEST_SECONDS - 60
        assert ids(directory) == ["agent-1"]
        ahead = OLDEST_SECONDS + 1
        assert ids(directory) == []
        register(2)
        ahead = 0.0
        assert ids(directory) == ["agent-1", "agent-2"]


def test_another_ones_record_stays(directory: AgentDirectory, register: Callable[..., dict[str, Any]]) -> None:
    """Only the predecessor's is taken out, and only by its id: another agent may have its address now."""
    register(1)
    register(2)
    register(3, predecessor="agent-1")
    assert ids(directory) == ["agent-2", "agent-3"]
    register(4, predecessor="nobody-knows")
    assert ids(directory) == ["agent-2", "agent-3", "agent-4"]


def test_what_cannot_be_read_is_left_out(
    directory: AgentDirectory,
    register: Callable[..., dict[str, Any]],
    cluster: ClusterConfig,
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(cluster.agents_topic, key=b"of-the-future:1", value=b"\xc3\x01" + bytes(8) + b"?")
    producer.flush(15)
    assert ids(directory) == ["agent-1"]
    assert "of-the-future:1 is left out" in caplog.text


def test_a_topic_that_was_made_anew(
    directory: AgentDirectory,
    register: Callable[..., dict[str, Any]],
    cluster: ClusterConfig,
    admin: AdminClient,
) -> None:
    for port in (1, 2, 3):
        register(port)
    assert len(ids(directory)) == 3
    admin.delete_topics([cluster.agents_topic])[cluster.agents_topic].result(15)
    until(lambda: ids(directory) == [], "it is gone")
    register(4)
    until(lambda: ids(directory) == ["agent-4"], "the new one is read")


# -- a broker that is away, or makes topics by itself --------------------------------------------------------


@pytest.mark.timeout(400)
def test_missing_topics_and_missing_brokers(
    application: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("changelog_state.changelog.registration._RETRY_SECONDS", 0.2)
    monkeypatch.setattr("changelog_state.changelog.registration.RENEW_SECONDS", 1.0)
    monkeypatch.setattr("changelog_state.changelog.agents._AWAY_SECONDS", 2.0)
    properties = {"auto.create.topics.enable": "true"}
    with embedded_broker(data_dir=tmp_path / "kafka", heap_mb=256, properties=properties) as own:
        cluster = ClusterConfig(application, own.bootstrap_servers)
        directory = AgentDirectory(cluster)
        assert directory.read() == []
        assert directory.read() == []
        topics = AdminClient({"bootstrap.servers": own.bootstrap_servers}).list_topics(timeout=15).topics
        assert cluster.agents_topic not in topics, "asking does not make it"
        registration = Registration(cluster, "127.0.0.1:1", lambda: described(1))
        registration.announce()
        assert ids(directory) == ["agent-1"]

        own.kill()
        started = time.monotonic()
        assert ids(directory) == ["agent-1"], "what was known"
        assert time.monotonic() - started < BOUND_SECONDS
        started = time.monotonic()
        assert ids(directory) == ["agent-1"]
        assert time.monotonic() - started < 0.5, "not waited for each time"
        assert "the list of agents is" in caplog.text
        with closing(AgentDirectory(cluster)) as another:
            started = time.monotonic()
            with pytest.raises(BrokerUnavailableError, match="did not answer"):
                another.read()
            assert time.monotonic() - started < BOUND_SECONDS
        until(lambda: "the registration could not be renewed" in caplog.text, "the agent goes on trying", 60)
        started = time.monotonic()
        stopped = Registration(cluster, "127.0.0.1:2", lambda: described(2))
        stopped._announced = AgentRecord.of(described(2))
        stopped.withdraw()
        assert time.monotonic() - started < BOUND_SECONDS, "an agent can be stopped"
        assert "127.0.0.1:2 stays for a while" in caplog.text

        caplog.set_level(logging.INFO)
        own.start()
        until(lambda: "registered again as 127.0.0.1:1" in caplog.text, "registered again", 90)
        before = directory._looked_at
        until(
            lambda: ids(directory) == ["agent-1"] and directory._looked_at != before, "the broker is asked again", 60
        )
        registration.withdraw()
        until(lambda: ids(directory) == [], "the withdrawal is seen", 60)
        directory.close()
