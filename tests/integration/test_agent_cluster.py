"""Several agents as processes, registered and reached over TCP: they come, go, are killed, frozen and cut off."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from changelog_state.agent.client import AgentClient
from changelog_state.codec.partitioner import partition_of
from changelog_state.config import StoreConfig
from changelog_state.errors import AgentUnavailableError, StaleEpochError
from changelog_state.faults import arm
from changelog_state.fleet import Fleet
from tests.support.driver import CODEC, Driver, Event, Model, dump, home_of
from tests.support.node import Node
from tests.support.polling import until
from tests.support.wire import Wire

pytestmark = pytest.mark.kafka

EVERYWHERE: list[Event] = [(f"key-{number}", 1) for number in range(40)]


@pytest.fixture
def store(broker: Any, application: str) -> StoreConfig:
    return StoreConfig(application, "totals", broker.bootstrap_servers, 4)


@pytest.fixture
def make_node(tmp_path: Path, store: StoreConfig) -> Iterator[Callable[..., Node]]:
    made: list[Node] = []

    def make(name: str, *options: str, start: bool = True) -> Node:
        faults = tmp_path / f"{name}-faults"
        faults.mkdir(exist_ok=True)
        node = Node(tmp_path / name, {"CHANGELOG_STATE_FAULTS": str(faults)})
        node.options = (
            *("--application", store.application, "--bootstrap-servers", store.bootstrap_servers),
            *(options or ("--advertise", "127.0.0.1:0")),
        )
        made.append(node)
        if start:
            node.start()
        return node

    yield make
    for node in made:
        for held in faults_of(node).glob("*.held"):
            held.unlink(missing_ok=True)
        node.kill()


def faults_of(node: Node) -> Path:
    return node.disk.with_name(f"{node.disk.name}-faults")


@pytest.fixture
def make_cluster_driver(store: StoreConfig, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    made: list[tuple[Driver, Fleet]] = []

    def make(standby_replicas: int = 0) -> Driver:
        fleet = Fleet(store, tmp_path / "no agent here", tmp_path, start=False)
        driver = Driver(store, fleet.needed, discover=fleet.known, standby_replicas=standby_replicas)
        made.append((driver, fleet))
        return driver

    yield make
    for driver, fleet in made:
        driver.close()
        fleet.close()


def pulse(node: Node, config: StoreConfig) -> dict[int, dict[str, Any]]:
    """What this node's agent has, asked over its unix socket; nothing if it does not answer."""
    from changelog_state.agent.launcher import find_agent

    client = find_agent(node.disk)
    if client is None:
        return {}
    try:
        answer = client.pulse(config, as_driver=False)
    except AgentUnavailableError:
        return {}
    finally:
        client.close()
    return {status["partition"]: status for status in answer["partitions"]}


def owned(node: Node, config: StoreConfig) -> list[int]:
    return [p for p, status in pulse(node, config).items() if status["phase"] == "ACTIVE"]


def hot(node: Node, config: StoreConfig) -> list[int]:
    """Partitions that it follows, and has everything of."""
    found = pulse(node, config)
    return [p for p, status in found.items() if status["follower"] and status["follower"]["lag_records"] == 0]


def state(driver: Driver) -> dict[tuple[str, str], Any]:
    """All of it, from whoever owns it."""
    gate = driver.gate(10_000)
    found: dict[tuple[str, str], Any] = {}
    for address in {owner.address for owner in gate.owners.values()}:
        client = AgentClient(address)
        found |= dump(client, driver.config)
        client.close()
    return found


@pytest.mark.parametrize("replicas", [0, 1])
def test_an_owner_is_killed_in_its_commit(
    replicas: int, make_node: Any, make_cluster_driver: Any, store: StoreConfig
) -> None:
    one, two = make_node("one"), make_node("two")
    driver, model = make_cluster_driver(replicas), Model()
    assert driver.run(0, EVERYWHERE) == model.run(EVERYWHERE)
    assert (len(owned(one, store)), len(owned(two, store))) == (2, 2)
    if replicas:
        until(lambda: len(hot(two, store)) == 2, "each follows what the other owns")
    arm(faults_of(one), "commit.in_transaction", "kill")
    assert driver.run(1, EVERYWHERE) == model.run(EVERYWHERE)
    one.wait()
    assert sorted(owned(two, store)) == [0, 1, 2, 3]
    read = [status["restore"]["records"] for status in pulse(two, store).values() if status["restore"]]
    assert driver.run(2, EVERYWHERE) == model.run(EVERYWHERE)
    assert state(driver) == model.entries
    if replicas:
        assert max(read) <= 10, "what a replica has is not read again"


def test_the_successor_is_killed_while_it_takes_over(
    make_node: Any, make_cluster_driver: Any, store: StoreConfig
) -> None:
    one, two, three = (make_node(name) for name in ("one", "two", "three"))
    driver, model = make_cluster_driver(1), Model()
    assert driver.run(0, EVERYWHERE) == model.run(EVERYWHERE)
    until(lambda: sum(len(hot(node, store)) for node in (one, two, three)) == 4, "every partition has its replica")
    lost = owned(one, store)
    assert lost
    successor = next(node for node in (two, three) if set(hot(node, store)) & set(lost))
    arm(faults_of(successor), "claim.before_replay", "kill")
    one.kill()
    assert driver.run(1, EVERYWHERE) == model.run(EVERYWHERE)
    successor.wait()
    [left] = [node for node in (two, three) if node is not successor]
    assert sorted(owned(left, store)) == [0, 1, 2, 3]
    assert state(driver) == model.entries


def test_owner_and_replica_are_killed_together(make_node: Any, make_cluster_driver: Any, store: StoreConfig) -> None:
    """Nobody is left; then one of them is started again, with an empty disk."""
    one, two = make_node("one"), make_node("two")
    driver, model = make_cluster_driver(1), Model()
    assert driver.run(0, EVERYWHERE) == model.run(EVERYWHERE)
    one.kill()
    two.lose()
    with ThreadPoolExecutor(1) as operator:
        batch = operator.submit(driver.run, 1, EVERYWHERE)
        two.start()
        assert batch.result(120) == model.run(EVERYWHERE)
    assert sorted(owned(two, store)) == [0, 1, 2, 3]
    one.start()
    until(lambda: len(hot(one, store)) == 4, "the other one is back, and follows")
    assert driver.run(2, EVERYWHERE) == model.run(EVERYWHERE)
    assert state(driver) == model.entries


def test_an_agent_that_is_cut_off_is_replaced_and_notices(
    make_node: Any, make_cluster_driver: Any, store: StoreConfig
) -> None:
    """In the middle of its commit. It is alive, it has its Kafka, and nobody hears it; later everybody does again."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    wire = Wire(port)
    one = make_node("one", "--advertise", f"127.0.0.1:{wire.port}", "--listen", f"127.0.0.1:{port}", start=False)
    one.start()
    described = one.describe()
    direct = AgentClient(f"grpc+tcp://127.0.0.1:{port}")
    # On one machine everybody would use the unix socket, which cannot be cut.
    Path(described["socket"].removeprefix("grpc+unix://")).unlink()
    two = make_node("two")
    driver, model = make_cluster_driver(1), Model()
    try:
        assert driver.run(0, EVERYWHERE) == model.run(EVERYWHERE)
        until(lambda: len(hot(two, store)) == 2, "there is a replica")
        arm(faults_of(one), "commit.before_kafka_commit", "hold")
        held = faults_of(one) / "commit.before_kafka_commit.held"
        with ThreadPoolExecutor(1) as spark:
            batch = spark.submit(driver.run, 1, EVERYWHERE)
            until(held.exists, "it is inside its commit")
            wire.cut()
            assert batch.result(120) == model.run(EVERYWHERE), "the replica has taken over"
        assert sorted(owned(two, store)) == [0, 1, 2, 3]
        held.unlink()
        refused = until(
            lambda: [s for s in direct.status(store) if s["phase"] == "FAILED"], "its commit is refused: it is fenced"
        )
        assert {status["error"]["class"] for status in refused} == {"IndeterminateCommitError"}
        assert driver.run(2, EVERYWHERE) == model.run(EVERYWHERE)
        wire.mend()
        until(
            lambda: (
                all(s["phase"] != "ACTIVE" for s in direct.status(store))
                and any(s["tailing"] for s in direct.status(store))
            ),
            "it has let go of the rest too, and follows",
        )
        for number in range(3, 6):
            assert driver.run(number, EVERYWHERE) == model.run(EVERYWHERE)
        assert state(driver) == model.entries
    finally:
        direct.close()
        wire.close()


def test_a_frozen_agent_is_replaced(make_node: Any, make_cluster_driver: Any, store: StoreConfig) -> None:
    """Its connections stay open and say nothing, also to a task that waits for an answer."""
    one, two = make_node("one"), make_node("two")
    driver, model = make_cluster_driver(1), Model()
    assert driver.run(0, EVERYWHERE) == model.run(EVERYWHERE)
    until(lambda: len(hot(two, store)) == 2, "there is a replica")
    address = one.describe()["address"]

    def gate_of_one() -> Any:
        """On a busy machine it may have been taken for lost a moment ago, and get its share again."""
        gate = driver.gate(1)
        mine = [partition for partition, owner in gate.owners.items() if owner.address == address]
        return (gate, mine[0]) if mine else None

    gate, mine = until(gate_of_one, "it owns something")
    attempt = driver.attempt(gate, [("key-1", 1)], mine)
    one.freeze()
    try:
        with pytest.raises(AgentUnavailableError):
            attempt.get()
        assert driver.run(1, EVERYWHERE) == model.run(EVERYWHERE)
        assert sorted(owned(two, store)) == [0, 1, 2, 3]
    finally:
        one.thaw()
        attempt.close()
    until(lambda: owned(one, store) == [], "it is told, once it can listen")
    assert driver.run(2, EVERYWHERE) == model.run(EVERYWHERE)
    assert state(driver) == model.entries


def test_reads_are_answered_by_replicas_when_that_is_allowed(
    make_node: Any, make_cluster_driver: Any, make_service: Any, store: StoreConfig
) -> None:
    """By a service that finds the agents where they are registered; in the end nobody owns anything any more."""
    one, two = make_node("one"), make_node("two")
    driver, model = make_cluster_driver(1), Model()
    assert driver.run(0, EVERYWHERE) == model.run(EVERYWHERE)
    until(lambda: len(hot(one, store)) == len(hot(two, store)) == 2, "replicas are hot")
    service = make_service(store=store.store, agents="external")
    # The driver of these tests places keys in its own way; these are where Spark would put them, too.
    first, second = [key for key, _ in EVERYWHERE if partition_of("spark", key, CODEC, 4) == home_of(key, 4)][:2]
    owner = service.read(first, "total")
    assert (owner.value, owner.replica) == (1, False)
    replica = service.read(first, "total", stale_ok=True)
    assert (replica.value, replica.replica, replica.lag_records) == (1, True, 0)
    assert service.get("nobody", "total", "none", stale_ok=True) == "none"
    assert service.get_all(first, stale_ok=True) == {"total": 1}
    status = service.status()
    assert {agent["id"] for agent in status["agents"]} == {one.describe()["id"], two.describe()["id"]}
    hosts = {agent["id"]: agent["host"] for agent in status["agents"]}
    for partition in status["partitions"]:
        [found] = partition["replicas"]
        assert found["agent"] != partition["owner"]
        assert found["host"] == hosts[found["agent"]] != hosts[partition["owner"]]
        assert (found["phase"], found["lag_records"], found["warning"]) == ("FOLLOWING", 0, None)
    driver.close()
    one.kill()
    entries = {(key, name): value for key, values in service.scan(stale_ok=True) for name, value in values.items()}
    assert entries == model.entries
    assert service.get(second, "total") == 1, "and the truth can be had too: who followed it has all of it"


def test_two_drivers_at_once(make_node: Any, make_cluster_driver: Any, store: StoreConfig) -> None:
    """The later one rules all agents; the earlier one can do nothing any more, not even move replicas."""
    one, two = make_node("one"), make_node("two")
    old, model = make_cluster_driver(1), Model()
    assert old.run(0, EVERYWHERE) == model.run(EVERYWHERE)
    until(lambda: len(hot(one, store)) == len(hot(two, store)) == 2, "replicas are hot")
    new = make_cluster_driver(1)
    assert new.run(1, EVERYWHERE) == model.run(EVERYWHERE)
    with pytest.raises(StaleEpochError):
        old.run(1, EVERYWHERE)
    for number in range(2, 8):
        assert new.run(number, EVERYWHERE) == model.run(EVERYWHERE)
    assert state(new) == model.entries


def test_a_drained_agent_can_be_stopped_without_anybody_waiting(
    make_node: Any, make_cluster_driver: Any, store: StoreConfig
) -> None:
    from changelog_state.agent.launcher import find_agent

    one, two = make_node("one"), make_node("two")
    driver, model = make_cluster_driver(), Model()
    assert driver.run(0, EVERYWHERE) == model.run(EVERYWHERE)
    client = find_agent(one.disk)
    assert client is not None
    client.drain()
    number = 1
    while owned(one, store):
        assert number < 200
        assert driver.run(number, EVERYWHERE) == model.run(EVERYWHERE)
        number += 1
    client.close()
    assert sorted(owned(two, store)) == [0, 1, 2, 3]
    assert max(status["restore"]["records"] for status in pulse(two, store).values()) <= 10, "it was warmed up first"
    assert one.stop() == 0
    assert driver.run(number, EVERYWHERE) == model.run(EVERYWHERE)
    assert state(driver) == model.entries


def test_agents_come_and_go_under_load(make_node: Any, make_cluster_driver: Any, store: StoreConfig) -> None:
    """Many batches, and at every third something happens to some agent; every row and the state are the model's."""
    dice = random.Random(20)
    nodes = {name: make_node(name) for name in ("one", "two", "three")}
    running, frozen = set(nodes), set()
    driver, model = make_cluster_driver(1), Model()

    def disturb() -> None:
        for name in sorted(frozen):
            nodes[name].thaw()
        frozen.clear()
        down = sorted(set(nodes) - running)
        if down and (len(running) == 1 or dice.random() < 0.6):
            name = dice.choice(down)
            (faults_of(nodes[name]) / "commit.before_kafka_commit").unlink(missing_ok=True)
            nodes[name].kill()  # it was to die in a commit, and had none
            nodes[name].start()
            running.add(name)
            return
        name = dice.choice(sorted(running))
        what = dice.choice(
            ["kill", "lose", "stop", "freeze", "kill in commit"] if len(running) > 1 else ["kill in commit"]
        )
        node = nodes[name]
        if what == "freeze":
            node.freeze()
            frozen.add(name)
            return
        if what == "kill in commit":
            arm(faults_of(node), "commit.before_kafka_commit", "kill")
            running.discard(name)
            return
        running.discard(name)
        {"kill": node.kill, "lose": node.lose, "stop": node.stop}[what]()

    try:
        for number in range(45):
            events: list[Event] = [
                (f"key-{dice.randrange(60)}", dice.choice([1, 2, 3, None])) for _ in range(dice.randrange(1, 80))
            ]
            if number % 3 == 2:
                disturb()
            assert driver.run(number, events) == model.run(events), f"batch {number}"
    finally:
        for name in frozen:
            nodes[name].thaw()
    assert state(driver) == model.entries
