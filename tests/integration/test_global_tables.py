"""Global tables at agents: what a batch waits for, what is found, and what a topic or an agent may do meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import changelog_state as cs
import restore.bulk
from changelog_state.agent import followed_table, tables
from changelog_state.config import StoreConfig
from changelog_state.faults import arm
from changelog_state.state.context import StateContext
from changelog_state.state.handle import State
from changelog_state.state.variables import declared_types
from tests.support.driver import BATCH_TIME_MS, AgentProcess, LocalAgent
from tests.support.polling import until
from tests.support.protocol import FIRST, SECOND
from tests.support.tables import TableTopic, looked_up, status_at

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(broker: Any) -> TableTopic:
    return TableTopic(broker.bootstrap_servers)


@pytest.fixture
def prices(topic: TableTopic) -> cs.GlobalTable:
    return cs.GlobalTable("prices", topic=topic.name, value="string")


@pytest.fixture
def make_driver_with(make_driver: Any, config: StoreConfig) -> Callable[..., Any]:
    def make(table: cs.GlobalTable, *agents: Any, **settings: Any) -> Any:
        return make_driver(*agents, tables=[table.settings.config(config)], **settings)

    return make


def many(start: int, end: int) -> dict[str, str | None]:
    return {f"k{number}": str(number) for number in range(start, end)}


def test_a_batch_begins_with_all_that_the_topic_had(
    agent: LocalAgent, make_driver_with: Any, config: StoreConfig, topic: TableTopic, prices: cs.GlobalTable
) -> None:
    topic.write(many(0, 500))
    topic.write({"k1": "one", "k2": None, "empty": ""})
    driver = make_driver_with(prices, agent)
    driver.gate(0)
    access = looked_up(prices, config, agent)
    expected = many(0, 500) | {"k1": "one", "empty": ""}
    del expected["k2"]
    assert access.get_many([*expected, "k2", "nobody"], None) == expected
    topic.write({"k3": None, "new": "5"})
    until(lambda: access.get_many(["k3", "new"], None) == {"new": "5"}, "it goes on following")
    until(lambda: status_at(agent, config)["lag_records"] == 0, "nothing is missing")
    status = status_at(agent, config)
    assert (status["phase"], status["ready"], status["lag_seconds"]) == ("FOLLOWING", True, 0.0)
    assert (agent.registry.state_dir / "tables" / config.application / "prices" / "0" / "db" / "CURRENT").exists()


def test_only_what_was_committed(
    agent: LocalAgent, make_driver_with: Any, config: StoreConfig, topic: TableTopic, prices: cs.GlobalTable
) -> None:
    topic.transact({"a": "1", "b": "1"}, commit=True)
    topic.transact({"a": "2", "c": "2"}, commit=False)
    make_driver_with(prices, agent).gate(0)
    access = looked_up(prices, config, agent)
    # A broker says that a transaction is committed a moment before readers get it.
    until(lambda: access.get_many("abc", None) == {"a": "1", "b": "1"}, "the committed one is there")
    topic.transact({"a": "3"}, commit=True)
    topic.transact({"b": None}, commit=False)
    until(lambda: access.get_many("ab", None) == {"a": "3", "b": "1"}, "the committed one is there")


def test_a_topic_that_keeps_deletions_for_no_time(
    agent: LocalAgent, make_driver_with: Any, config: StoreConfig, broker: Any
) -> None:
    """It is followed like any other, and not read afresh again and again."""
    topic = TableTopic(broker.bootstrap_servers, delete_retention_ms="0")
    topic.write(many(0, 10))
    table = cs.GlobalTable("prices", topic=topic.name, value="string")
    make_driver_with(table, agent).gate(0)
    access = looked_up(table, config, agent)
    topic.write({"k1": None, "k2": "two"})
    until(lambda: access.get_many(["k1", "k2"], None) == {"k2": "two"}, "it goes on following")
    assert status_at(agent, config)["error"] is None


def test_a_key_that_another_producer_has_placed_elsewhere(
    agent: LocalAgent, make_driver_with: Any, config: StoreConfig, topic: TableTopic, prices: cs.GlobalTable
) -> None:
    topic.write({"a": "0", "b": "0", "c": "0"}, partition=0)
    topic.write({"x": "1", "y": "1", "z": "1"}, partition=1)
    make_driver_with(prices, agent).gate(0)
    expected = {"a": "0", "b": "0", "c": "0", "x": "1", "y": "1", "z": "1"}
    assert looked_up(prices, config, agent).get_many([*expected, "nobody"], None) == expected


def test_no_batch_begins_before_a_table_is_there(
    agent: LocalAgent,
    make_driver_with: Any,
    config: StoreConfig,
    topic: TableTopic,
    prices: cs.GlobalTable,
    faults: Path,
) -> None:
    topic.write(many(0, 100))
    arm(faults, "table.replaying", "hold")
    impatient = make_driver_with(prices, agent, timeout_seconds=2.0)
    with pytest.raises(
        cs.RestoreTimeoutError,
        match=rf"global table \S+/prices \(topic {topic.name}\).*RESTORING, \d+ records behind",
    ) as raised:
        impatient.gate(0)
    assert "partition 0" not in str(raised.value), "the store's own partition is ready"
    opened = threading.Event()
    driver = make_driver_with(prices, agent)
    waiting = threading.Thread(target=lambda: (driver.gate(0), opened.set()))
    waiting.start()
    assert not opened.wait(1.0)
    (faults / "table.replaying.held").unlink()
    waiting.join()
    assert opened.is_set()
    assert looked_up(prices, config, agent).get_many(["k99"], None) == {"k99": "99"}


def test_a_new_driver_gets_what_was_there_when_it_first_asked(
    agent: LocalAgent,
    make_driver_with: Any,
    config: StoreConfig,
    topic: TableTopic,
    prices: cs.GlobalTable,
    faults: Path,
) -> None:
    """Followed for somebody else already, and held back: what was written since is waited for."""
    make_driver_with(prices, agent).gate(0)
    arm(faults, "replica.between_transactions", "hold")
    topic.write({"a": "1"})
    held = faults / "replica.between_transactions.held"
    until(held.exists, "the table is held")
    topic.write({"a": "2"})
    driver = make_driver_with(prices, agent)
    opened = threading.Event()
    waiting = threading.Thread(target=lambda: (driver.gate(0), opened.set()))
    waiting.start()
    assert not opened.wait(0.5)
    held.unlink()
    waiting.join()
    assert looked_up(prices, config, agent).get_many(["a"], None) == {"a": "2"}


def test_a_batch_costs_one_request_per_agent(
    agent: LocalAgent, make_driver_with: Any, prices: cs.GlobalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver_with(prices, agent)
    driver.run(0, FIRST)
    calls: list[str] = []
    real = agent.client._call

    def counted(action: str, *args: Any) -> Any:
        calls.append(action)
        return real(action, *args)

    monkeypatch.setattr(agent.client, "_call", counted)
    driver.gate(1)
    assert [action for action in calls if action != "pulse"] == ["open_batch"]


@pytest.mark.parametrize("missing", [True, False])
def test_a_topic_that_cannot_be_followed(
    agent: LocalAgent, make_driver_with: Any, broker: Any, missing: bool
) -> None:
    topic = TableTopic(broker.bootstrap_servers, cleanup_policy="delete")
    table = cs.GlobalTable("prices", topic="no-such-topic" if missing else topic.name)
    begun = time.monotonic()
    with pytest.raises(
        cs.ConfigurationError, match="no-such-topic, which does not exist" if missing else "'delete'.*compacted topic"
    ):
        make_driver_with(table, agent).gate(0)
    assert time.monotonic() - begun < 10
    if missing:
        return
    topic.delete()
    topic.create(1)
    make_driver_with(table, agent).gate(0)


def test_two_tables_of_one_name(
    agent: LocalAgent, make_driver_with: Any, broker: Any, topic: TableTopic, prices: cs.GlobalTable
) -> None:
    make_driver_with(prices, agent).gate(0)
    other = cs.GlobalTable("prices", topic=TableTopic(broker.bootstrap_servers).name)
    with pytest.raises(cs.ConfigurationError, match=f"follows topic {topic.name}.*another name"):
        make_driver_with(other, agent).gate(0)


def test_a_recreated_topic_is_read_afresh(
    agent: LocalAgent,
    make_driver_with: Any,
    config: StoreConfig,
    topic: TableTopic,
    prices: cs.GlobalTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that has grown past the old position, where reading on gives no error."""
    monkeypatch.setattr(followed_table, "_LOOK_SECONDS", 0.5)
    topic.write({"old": "1", "both": "1"})
    make_driver_with(prices, agent).gate(0)
    topic.delete()
    topic.create(3)
    topic.write(many(0, 200) | {"both": "2"})
    access = looked_up(prices, config, agent)

    def found() -> Any:
        try:
            return access.get_many(["old", "both", "k0", "k199"], None)
        except cs.AgentUnavailableError:
            return None

    until(lambda: found() == {"both": "2", "k0": "0", "k199": "199"}, "only what the new one has")


def test_a_topic_that_gets_more_partitions(
    agent: LocalAgent,
    make_driver_with: Any,
    config: StoreConfig,
    topic: TableTopic,
    prices: cs.GlobalTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed_table, "_LOOK_SECONDS", 0.5)
    topic.write(many(0, 20))
    make_driver_with(prices, agent).gate(0)
    topic.grow(5)
    topic.write(many(20, 40))
    access = looked_up(prices, config, agent)

    def found() -> Any:
        try:
            return access.get_many(many(0, 40), None)
        except cs.AgentUnavailableError:
            return None

    until(lambda: found() == many(0, 40), "those of the new partitions too")


def test_a_long_topic_is_read_in_bulk(
    agent: LocalAgent,
    make_driver_with: Any,
    config: StoreConfig,
    topic: TableTopic,
    prices: cs.GlobalTable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(restore.bulk, "BULK_OFFSETS", 1_000)
    topic.write(many(0, 5_000))
    topic.write({"k7": None, "m": "not a marker", "k8": "eight"})
    with caplog.at_level("INFO"):
        make_driver_with(prices, agent).gate(0)
    access = looked_up(prices, config, agent)
    assert access.get_many(["k6", "k7", "k8", "m"], None) == {"k6": "6", "k8": "eight", "m": "not a marker"}
    assert access.get_many(many(8, 5_000), None) == many(9, 5_000) | {"k8": "eight"}
    topic.write({"k7": "seven"})
    until(lambda: access.get_many(["k7"], None) == {"k7": "seven"}, "it goes on behind that")


def test_a_killed_agent_goes_on_from_its_position(
    process: AgentProcess,
    make_driver_with: Any,
    config: StoreConfig,
    topic: TableTopic,
    prices: cs.GlobalTable,
) -> None:
    topic.write(many(0, 300))
    driver = make_driver_with(prices, process)
    driver.run(0, FIRST)
    process.kill()
    topic.write({"k1": None, "k2": "two", "new": "9"})
    driver.run(1, SECOND)
    access = looked_up(prices, config, process)
    assert access.get_many(["k1", "k2", "k3", "new"], None) == {"k2": "two", "k3": "3", "new": "9"}
    log = (process.state_dir / "agent.log").read_text()
    name = f"global table {config.application}/prices"
    restored = [line.split("restored: ")[1] for line in log.splitlines() if name in line and "restored: " in line]
    again = [line for line in restored if line.startswith("behind")]
    assert sum(int(line.split(", ")[1].split()[0]) for line in again) == 3, restored


def test_a_damaged_table_is_moved_aside_and_read_again(
    make_agent: Any, make_driver_with: Any, config: StoreConfig, topic: TableTopic, prices: cs.GlobalTable
) -> None:
    topic.write(many(0, 50))
    agent = make_agent("state")
    make_driver_with(prices, agent).gate(0)
    place = agent.registry.state_dir / "tables" / config.application / "prices"
    agent.stop()
    for partition in range(2):
        for manifest in (place / str(partition) / "db").glob("MANIFEST-*"):
            manifest.write_bytes(b"damaged")
    agent = make_agent("state")
    make_driver_with(prices, agent).gate(0)
    assert looked_up(prices, config, agent).get_many(many(0, 50), None) == many(0, 50)
    assert len(list(place.glob("*/corrupt-*"))) == 2


def test_a_store_as_a_table(make_agent: Any, make_driver: Any, config: StoreConfig, pair: StoreConfig) -> None:
    """The store has its own driver, and goes on changing; the table is followed by another agent too."""
    users = StoreConfig(pair.application, "users", pair.bootstrap_servers, 2)

    def set_names(key: str, amounts: list[int | None], state: cs.State) -> tuple[Any, ...]:
        for amount in amounts:
            if amount is None:
                state.delete("name")
                state.delete("age")
            else:
                state.set("name", key.upper())
                state.set("age", amount)
                state.set("seen", True, ttl=60)
        return (key,)

    one, two = make_agent("one"), make_agent("two")
    writer = make_driver(one, config=users, function=set_names)
    # Keys where Spark's partitioner, which the store was made with, puts them.
    from changelog_state.codec.keys import KeyCodec
    from changelog_state.codec.partitioner import spark_partition
    from tests.support import driver as support

    codec = KeyCodec(("string",))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(support, "home_of", lambda key, partitions: spark_partition(key, codec, partitions))
        writer.run(0, FIRST)
        table = cs.GlobalTable("users", store="users")
        driver = make_driver(two, tables=[table.settings.config(config)])
        driver.gate(0)
        access = looked_up(table, config, two)
        until(lambda: access.get_many(["a", "b", "nobody"], "name") == {"a": "A", "b": "B"}, "both names are there")
        assert access.get_many(["a", "gone"], None) == {
            "a": {"age": 1, "name": "A"},
            "gone": {"age": 4, "name": "GONE"},
        }
        writer.run(1, SECOND)
        until(lambda: access.get_many(["a", "gone"], "age") == {"a": 10}, "it follows")
    early = looked_up(table, config, two)
    early._now_ms = lambda: support.BATCH_TIME_MS
    assert early.get_many(["a"], None) == {"a": {"age": 10, "name": "A", "seen": True}}, "not expired by then"
    with pytest.raises(cs.InvalidKeyError):
        access.get_many([5], None)
    wrong = cs.GlobalTable("users", store="users", application="other")
    with pytest.raises(cs.AgentUnavailableError, match="is not followed"):
        looked_up(wrong, config, two).get_many(["a"], None)


@dataclass
class Profile:
    name: str


def test_a_store_of_declared_types_as_a_table(
    make_agent: Any, make_driver: Any, config: StoreConfig, pair: StoreConfig
) -> None:
    """Declared as the writer's epoch says, which may be later than the table was opened."""
    users = StoreConfig(pair.application, "users", pair.bootstrap_servers, 1)
    variables = {each.name: each for each in (cs.Value("profile", Profile), cs.Value("seen", datetime | None))}
    values = {"profile": Profile("Ann"), "seen": datetime(2024, 1, 1, tzinfo=UTC)}

    def writer_of(name: str) -> Any:
        def set_value(key: str, amounts: list[int | None], state: cs.State) -> tuple[Any, ...]:
            declared = State({}, StateContext(BATCH_TIME_MS, variables=variables))
            declared.set(name, values[name])
            state._changes.update(declared._changes)
            return (key,)

        known = {name: variables[name]}
        return make_driver(one, config=users, function=set_value, declared=declared_types(known))

    one, two = make_agent("one"), make_agent("two")
    writer_of("profile").run(0, [("a", 1)])
    table = cs.GlobalTable("users", store="users")
    make_driver(two, tables=[table.settings.config(config)]).gate(0)
    access, fresh = looked_up(table, config, two), looked_up(table, config, two)
    access._keep = True
    until(lambda: fresh.get_many(["a"], "profile") == {"a": {"name": "Ann"}}, "it is there")
    assert access.get_many(["a"], None) == {"a": {"profile": {"name": "Ann"}}}
    writer_of("seen").run(1, [("b", 1)])
    until(lambda: fresh.get_many(["b"], "seen") == {"b": values["seen"]}, "it follows")
    assert access.get_many(["b"], None) == {"b": {"seen": values["seen"]}}
    access.close()


def test_another_agent_answers_when_one_is_gone(
    make_agent: Any, make_driver_with: Any, config: StoreConfig, topic: TableTopic, prices: cs.GlobalTable
) -> None:
    topic.write({"a": "1"})
    one, two = make_agent("one"), make_agent("two")
    driver = make_driver_with(prices, one, two)
    driver.gate(0)
    until(lambda: len(driver.coordinator.table_agents()) == 2, "each has it, also one that owns nothing")
    from changelog_state.tables.access import TableAccess

    addresses = [one.client.address, two.client.address]
    request = looked_up(prices, config)._request
    access = TableAccess(prices.settings, request, lambda: addresses, keep=True)
    assert access.get_many(["a"], None) == {"a": "1"}
    access._session.close()
    one.stop()
    assert access.get_many(["a", "b"], None) == {"a": "1"}
    with pytest.raises(cs.AgentUnavailableError, match="cannot be looked into.*did not answer"):
        TableAccess(prices.settings, request, lambda: addresses[:1], keep=True).get_many(["a"], None)
    access.close()


def test_what_nobody_asks_for_is_followed_no_longer(
    agent: LocalAgent,
    config: StoreConfig,
    topic: TableTopic,
    prices: cs.GlobalTable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "_IDLE_SECONDS", 1.0)
    topic.write({"a": "1"})
    wanted = prices.settings.config(config)
    until(lambda: status_at(agent, config, wanted)["ready"], "it is followed")
    until(lambda: status_at(agent, config) is None, "it is followed no longer")
    until(lambda: status_at(agent, config, wanted)["ready"], "it is followed again")
    assert looked_up(prices, config, agent).get_many(["a"], None) == {"a": "1"}
