"""The topics: created as the protocol needs them, verified on every use, never another store's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from changelog_state.broker import EmbeddedBroker
from changelog_state.changelog.control import ControlLog, read_control
from changelog_state.changelog.record import BatchRecord, Claim
from changelog_state.changelog.topic import delete_topics, ensure_topics, lookup_topic
from changelog_state.changelog.writer import ChangelogWriter
from changelog_state.codec.kinds import CLAIM
from changelog_state.config import FORMAT_VERSION, StoreConfig
from changelog_state.errors import (
    BrokerUnavailableError,
    ChangelogMismatchError,
    ConfigurationError,
    StaleEpochError,
)
from tests.support.driver import Driver, LocalAgent, identity_of

pytestmark = pytest.mark.kafka


@pytest.fixture
def config(broker: EmbeddedBroker, application: str) -> StoreConfig:
    return StoreConfig(application, "totals", broker.bootstrap_servers, 3)


@pytest.fixture
def admin(broker: EmbeddedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def alter(admin: AdminClient) -> Callable[..., None]:
    def change(topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(15)

    return change


# -- made ----------------------------------------------------------------------------------------------------


def test_created_with_what_the_protocol_needs(config: StoreConfig, admin: AdminClient) -> None:
    topic = ensure_topics(config)
    assert topic.name == config.changelog_topic
    assert topic.partitions == 3
    expected = {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "3600000",
        "delete.retention.ms": "86400000",
        "message.timestamp.type": "LogAppendTime",
    }
    assert {name: topic.settings[name] for name in expected} == expected
    assert topic.delete_retention_ms == 86_400_000
    assert topic.largest_record_bytes == 16 * 1024 * 1024
    control = admin.list_topics(config.control_topic, timeout=15).topics[config.control_topic]
    assert len(control.partitions) == 1
    again = ensure_topics(config)
    assert again == topic, "found, not made again"


def test_created_with_what_was_asked_for(config: StoreConfig) -> None:
    wanted = {"min.compaction.lag.ms": 5, "segment.bytes": 2_000_000, "preallocate": True, "replication.factor": 1}
    topic = ensure_topics(replace(config, topic=wanted))
    assert topic.settings["min.compaction.lag.ms"] == "5"
    assert topic.settings["segment.bytes"] == "2000000"
    assert topic.settings["preallocate"] == "true"
    assert topic.settings["delete.retention.ms"] == "86400000"


@pytest.mark.parametrize(("name", "value"), [("cleanup.policy", "delete"), ("message.timestamp.type", "CreateTime")])
def test_what_cannot_be_asked_for(name: str, value: str, config: StoreConfig) -> None:
    with pytest.raises(ConfigurationError, match=name):
        ensure_topics(replace(config, topic={name: value}))
    assert lookup_topic(config) is None, "nothing was made"


def test_lookup_changes_nothing(config: StoreConfig) -> None:
    assert lookup_topic(config) is None
    assert lookup_topic(config) is None
    made = ensure_topics(config)
    assert lookup_topic(config) == made


def test_deleted_and_made_again_it_has_another_id(config: StoreConfig) -> None:
    first = ensure_topics(config)
    delete_topics(config)
    assert lookup_topic(config) is None
    delete_topics(config)  # what is not there need not be deleted
    assert ensure_topics(config).topic_id != first.topic_id


def test_no_broker(application: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = StoreConfig(application, "s", "127.0.0.1:9", 1, kafka={"socket.connection.setup.timeout.ms": 1000})
    monkeypatch.setattr("changelog_state.changelog.topic._ANSWER_SECONDS", 1.0)
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:9"):
        ensure_topics(config)


# -- verified ------------------------------------------------------------------------------------------------


def test_another_number_of_partitions(config: StoreConfig) -> None:
    ensure_topics(config)
    for check in (ensure_topics, lookup_topic):
        with pytest.raises(ChangelogMismatchError, match="has 3 partitions.*partitions=4.*use partitions=3"):
            check(replace(config, partitions=4))


def test_partitions_added_behind_our_back(config: StoreConfig, admin: AdminClient) -> None:
    ensure_topics(config)
    admin.create_partitions([NewPartitions(config.changelog_topic, 5)])[config.changelog_topic].result(15)
    with pytest.raises(ChangelogMismatchError, match="has 5 partitions"):
        ensure_topics(config)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cleanup.policy", "delete", "compact"),
        ("cleanup.policy", "compact,delete", "compact"),
        ("message.timestamp.type", "CreateTime", "LogAppendTime"),
        ("min.compaction.lag.ms", "0", "3600000"),
        ("delete.retention.ms", "1000", "86400000"),
    ],
)
def test_a_changed_setting_is_named_with_its_remedy(
    name: str, value: str, expected: str, config: StoreConfig, alter: Any
) -> None:
    ensure_topics(config)
    alter(config.changelog_topic, name, value)
    with pytest.raises(ChangelogMismatchError) as raised:
        ensure_topics(config)
    text = str(raised.value)
    assert f"{config.changelog_topic} has {name}={value}, expected {expected}" in text
    assert f"--entity-name {config.changelog_topic} --add-config {name}={expected}" in text
    alter(config.changelog_topic, name, expected)
    ensure_topics(config)


def test_a_changed_retention_can_be_agreed_to(config: StoreConfig, alter: Any) -> None:
    ensure_topics(config)
    alter(config.changelog_topic, "delete.retention.ms", "1000")
    topic = ensure_topics(replace(config, topic={"delete.retention.ms": 1000}))
    assert topic.delete_retention_ms == 1_000


def test_a_topic_that_was_there_before_and_is_no_changelog(config: StoreConfig, admin: AdminClient) -> None:
    new = NewTopic(config.changelog_topic, num_partitions=3, replication_factor=1)
    admin.create_topics([new])[config.changelog_topic].result(15)
    with pytest.raises(ChangelogMismatchError, match="cleanup.policy=delete, expected compact"):
        ensure_topics(config)


def test_a_control_topic_that_is_not_compacted(config: StoreConfig, alter: Any) -> None:
    ensure_topics(config)
    alter(config.control_topic, "cleanup.policy", "delete")
    with pytest.raises(ChangelogMismatchError, match=config.control_topic):
        ensure_topics(config)


# -- whose it is ---------------------------------------------------------------------------------------------


@pytest.fixture
def log(config: StoreConfig) -> ControlLog:
    """A driver that has it right, and works."""
    ensure_topics(config)
    return ControlLog(config, identity_of(config))


def still_works(log: ControlLog) -> None:
    log.record_batch(BatchRecord("q", 1, log.epoch, 0, None, None, None, None))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("partitioner", "kafka", "partitioner='spark'.*'kafka' is wanted.*partitioning="),
        ("key_types", ["long"], r"key_types=\['string'\].*\['long'\] is wanted.*cast"),
        ("key_types", ["string", "string"], "key_types"),
        ("partitions", 4, "partitions=3"),
        ("application", "other", "rename one"),
        ("store", "other", "rename one"),
    ],
)
def test_another_identity_is_refused_and_fences_nobody(
    field: str, value: Any, words: str, config: StoreConfig, log: ControlLog
) -> None:
    with pytest.raises(ChangelogMismatchError, match=words):
        ControlLog(config, identity_of(config, **{field: value}))
    still_works(log)
    state = read_control(config)
    assert state.epoch is not None
    assert state.epoch.epoch == log.epoch


def test_a_newer_format_is_refused_an_older_one_is_not(config: StoreConfig) -> None:
    ensure_topics(config)
    older = ControlLog(config, identity_of(config, format=FORMAT_VERSION - 1))
    current = ControlLog(config, identity_of(config))
    assert current.epoch == older.epoch + 1
    ControlLog(config, identity_of(config, format=FORMAT_VERSION + 1))
    with pytest.raises(ChangelogMismatchError, match=f"format={FORMAT_VERSION + 1}.*upgrade here"):
        ControlLog(config, identity_of(config))


def test_names_that_lead_to_the_same_topics(config: StoreConfig, application: str) -> None:
    """("a-b", "c") and ("a", "b-c")."""
    one = replace(config, application=f"{application}-b", store="c")
    other = replace(config, application=application, store="b-c")
    assert one.changelog_topic == other.changelog_topic
    assert one.transactional_id(0) == other.transactional_id(0)
    ensure_topics(one)
    log = ControlLog(one, identity_of(one))
    with pytest.raises(ChangelogMismatchError, match=f"application='{application}-b'.*rename one"):
        ControlLog(other, identity_of(other))
    still_works(log)


def test_a_new_driver_fences_the_old_one(config: StoreConfig, log: ControlLog) -> None:
    still_works(log)
    assert (log.batch.batch if log.batch else None) == 1
    new = ControlLog(config, identity_of(config))
    assert new.epoch == log.epoch + 1
    assert new.batch == log.batch, "it knows what the old one has recorded"
    with pytest.raises(StaleEpochError, match="another driver"):
        still_works(log)
    still_works(new)
    new.forget_batch()
    assert read_control(config).batch is None
    assert ControlLog(config, identity_of(config)).batch is None


# -- the same, at an agent -----------------------------------------------------------------------------------


@pytest.fixture
def agent(tmp_path: Any, faults: Any) -> Iterator[LocalAgent]:
    made = LocalAgent(tmp_path / "state")
    yield made
    made.stop()


@pytest.mark.parametrize(("field", "value"), [("partitioner", "kafka"), ("key_types", ["long"]), ("store", "other")])
def test_a_claim_for_another_identity_is_refused_and_fences_nobody(
    field: str, value: Any, config: StoreConfig, agent: LocalAgent, tmp_path: Any
) -> None:
    """Should the control topic be lost: the changelog's own claims say what the store is."""
    driver = Driver(config, lambda: [agent.client])
    driver.run(0, [("a", 1)])
    intruder = LocalAgent(tmp_path / "other")
    try:
        statuses = intruder.client.claim(config, identity_of(config, **{field: value}), driver.epoch, [0], 20)
    finally:
        intruder.stop()
    assert statuses[0]["phase"] == "FAILED"
    assert statuses[0]["error"]["class"] == "ChangelogMismatchError"
    assert f"{field}=" in statuses[0]["error"]["message"]
    assert driver.run(1, [("a", 1)]) == [("a", 1, 2)], "the owner was not fenced"
    driver.close()


def test_a_changelog_of_a_newer_format_is_refused_by_an_agent(config: StoreConfig, agent: LocalAgent) -> None:
    driver = Driver(config, lambda: [agent.client])
    writer = ChangelogWriter(config, config.changelog_topic, 1, config.transactional_id(1))
    claim = Claim(1, "future", "x", 0, **(vars(identity_of(config)) | {"format": FORMAT_VERSION + 1}))
    writer.write((), lambda: (CLAIM, claim.encode()), purpose="claim")
    with pytest.raises(ChangelogMismatchError, match="upgrade"):
        driver.gate(0)
    driver.close()


def test_a_changelog_that_is_gone_is_not_made_by_an_agent(config: StoreConfig, agent: LocalAgent) -> None:
    driver = Driver(config, lambda: [agent.client])
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    admin.delete_topics([config.changelog_topic], operation_timeout=15)[config.changelog_topic].result(15)
    with pytest.raises(ChangelogMismatchError, match="does not exist"):
        driver.gate(0)
    assert lookup_topic(config) is None
    driver.close()
