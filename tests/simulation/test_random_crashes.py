"""Random batches against a dict, while agents are killed, disks lost, partitions moved and drivers replaced.

Their rows go to a topic too, in which a read_committed consumer finds each of them once in the end.

Everything is drawn from the seed; a failing run prints it with all that was done. To run one seed, or more of
them: ``CHANGELOG_STATE_SEEDS=17 pytest tests/simulation`` or ``CHANGELOG_STATE_SEEDS=100-200``.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from changelog_state.agent.client import AgentClient
from changelog_state.broker import EmbeddedBroker
from changelog_state.config import StoreConfig
from changelog_state.faults import InjectedFaultError, arm
from tests.support.driver import AgentProcess, Driver, Event, Model
from tests.support.output_topic import OutputTopic

pytestmark = pytest.mark.kafka

BATCHES = 9
KEYS = [f"key-{number}" for number in range(16)]
AGENT_DIES = [
    "stage.before_seal",
    "stage.after_seal",
    "commit.before_transaction",
    "commit.in_transaction",
    "commit.before_kafka_commit",
    "commit.after_kafka_commit",
    "store.between_chunks",
    "commit.after_local_write",
    "claim.before_fencing",
    "claim.in_transaction",
    "claim.before_kafka_commit",
    "claim.before_replay",
    "replay.between_chunks",
]
DRIVER_DIES = ["driver.commit_one", "control.before_kafka_commit"]


def seeds() -> list[int]:
    first, _, last = os.environ.get("CHANGELOG_STATE_SEEDS", "1-3").partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.fixture(scope="module")
def processes(fault_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AgentProcess]]:
    made = [AgentProcess(tmp_path_factory.mktemp(f"node-{number}") / "state") for number in range(2)]
    yield made
    for process in made:
        process.kill()


class World:
    """Two nodes, one driver at a time, and what should come out."""

    def __init__(self, seed: int, config: StoreConfig, processes: list[AgentProcess], faults: Path) -> None:
        self.rng = random.Random(seed)
        self.config = config
        self.faults = faults
        self.nodes = processes
        self.current = 0
        self.model = Model()
        self.drivers: list[Driver] = []
        self.topic = OutputTopic(config.bootstrap_servers)
        self.put_out: list[Any] = []
        print(f"seed {seed}")

    def note(self, what: str) -> None:
        print(f"  {what}")

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def agents(self) -> list[AgentClient]:
        node = self.nodes[self.current]
        if not node.alive and self.chance(0.4):
            self.note(f"disk of node {self.current} lost")
            node.wipe(self.config)
        return [node.client]

    def new_driver(self) -> Driver:
        """The old one is not told."""
        while True:
            try:
                driver = Driver(self.config, self.agents, chunk=self.rng.randint(1, 5), output_topic=self.topic.name)
            except InjectedFaultError as error:
                self.note(f"driver died: {error}")
                continue
            self.drivers.append(driver)
            self.note(f"driver with epoch {driver.epoch}")
            return driver

    def arm_something(self) -> None:
        if self.chance(0.7):
            point = self.rng.choice([*AGENT_DIES, "commit.in_outputs"])
            action = f"kill {self.rng.randint(1, 3)}"
        elif self.chance(0.5):
            point = self.rng.choice(DRIVER_DIES)
            action = f"raise {self.rng.randint(1, 2)}"
        else:
            return
        self.note(f"armed: {point} {action}")
        arm(self.faults, point, action)

    def run(self, batch: int, events: list[Event]) -> Any:
        """Until it is through, with as many drivers as that takes."""
        for _ in range(10):
            driver = self.drivers[-1] if self.drivers else self.new_driver()
            try:
                return driver.run(batch, events, on_lost=lambda: self.note("an owner was lost"))
            except InjectedFaultError as error:
                self.note(f"driver died: {error}")
                self.new_driver()
        raise AssertionError("the batch does not get through")

    def disturb(self) -> None:
        """Between batches."""
        if self.chance(0.15):
            self.note(f"node {self.current} killed between batches")
            self.nodes[self.current].kill()
        if self.chance(0.2):
            self.current = 1 - self.current
            self.note(f"moved to node {self.current}; the other one still thinks that it owns everything")
            self.new_driver()
        elif self.chance(0.2):
            self.new_driver()

    def check(self) -> None:
        # A point that is still armed waits for its turn; here it would only make the test's own reading fail.
        held = {path: path.read_text() for path in self.faults.iterdir() if not path.name.startswith(".")}
        for path in held:
            path.unlink()
        assert self.drivers[-1].dump(self.agents()[0]) == self.model.entries
        for path, action in held.items():
            if action:
                arm(self.faults, path.name, action)

    def check_topic(self) -> None:
        found: dict[str, list[str]] = defaultdict(list)
        expected: dict[str, list[str]] = defaultdict(list)
        for key, row in self.topic.rows():
            found[key].append(row)
        for row in self.put_out:
            expected[row[0]].append(repr(row))
        assert found == expected, "each row once, those of a key in the order of the batches"

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()


@pytest.mark.parametrize("seed", seeds())
def test_whatever_happens_it_equals_a_dict(
    seed: int, broker: EmbeddedBroker, application: str, processes: list[AgentProcess], faults: Path
) -> None:
    config = StoreConfig(application, "totals", broker.bootstrap_servers, 2)
    world = World(seed, config, processes, faults)
    rng = world.rng
    try:
        for batch in range(BATCHES):
            keys = rng.sample(KEYS, rng.randint(1, len(KEYS)))
            events: list[Event] = [
                (key, None if world.chance(0.25) else rng.randint(0, 9))
                for key in keys
                for _ in range(rng.randint(1, 2))
            ]
            world.note(f"batch {batch}: {len(events)} events")
            expected = world.model.run(events)
            world.put_out += expected
            world.arm_something()
            assert world.run(batch, events) == expected
            if world.chance(0.35):
                world.note("replayed")
                world.new_driver()
                assert world.run(batch, events) == expected
            world.check()
            world.disturb()
        world.check_topic()
    finally:
        world.close()
