"""What the steward makes of what agents have said: moves that are ready, and who is told what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from changelog_state.config import StoreConfig
from changelog_state.errors import AgentUnavailableError
from restore.agent_watch import AgentWatch
from restore.assignment import assign
from restore.replica_lag import LagLimits
from restore.steward import Steward, views_of

CONFIG = StoreConfig("app", "store", "nowhere:1", 4)


class FakeAgent:
    """Answers with what a test has put into it, and remembers what it is told to follow."""

    def __init__(self, address: str, host: str | None = None) -> None:
        self.address = address
        self.host = host or address
        self.draining = False
        self.there = True
        self.statuses: dict[int, dict[str, Any]] = {p: status(p) for p in range(4)}
        self.told: list[tuple[list[int], Mapping[int, int]]] = []

    def pulse(self, config: StoreConfig) -> dict[str, Any]:
        if not self.there:
            raise AgentUnavailableError(f"{self.address} is gone")
        described = {"id": self.address, "host": self.host, "rack": None, "draining": self.draining}
        return {"agent": described, "partitions": list(self.statuses.values())}

    def follow(self, config: Any, epoch: int, partitions: Any, known_claims: Any, memory: int) -> None:
        self.told.append((list(partitions), known_claims))
        for number in range(4):
            if number in partitions:
                self.statuses[number] = status(number, "FOLLOWING", lag=0)
            elif self.statuses[number]["phase"] == "FOLLOWING":
                self.statuses[number] = status(number)

    def own(self, *numbers: int, claim: int = 5) -> None:
        for number in numbers:
            self.statuses[number] = status(number, "ACTIVE", claim=claim)


def status(number: int, phase: str = "CLOSED", *, claim: int | None = None, lag: int | None = None) -> dict[str, Any]:
    follower = None if lag is None else {"position": 100 - lag, "end": 100, "lag_records": lag, "lag_seconds": 0.0}
    return {
        "partition": number,
        "phase": phase,
        "claim": claim,
        "position": None if phase == "CLOSED" else 100,
        "disk_position": None,
        "follower": follower,
        "tailing": lag is not None,
        "claim_pending": False,
    }


class World:
    def __init__(self, *agents: FakeAgent, replicas: int = 0) -> None:
        self.watch = AgentWatch(lambda agent: agent.pulse(CONFIG), interval_seconds=60.0)
        self.agents = agents
        self.owners: dict[int, str] = {}
        self.claims: dict[int, int] = {}
        self.steward = Steward(
            CONFIG,
            7,
            self.watch,
            standby_replicas=replicas,
            restore_memory_mb=1,
            limits=LagLimits(),
            owners=lambda: dict(self.owners),
            claims=self.claims,
            discover=None,
        )

    def round(self) -> None:
        self.watch.look(self.agents)  # type: ignore[arg-type]
        self.steward.round()


@pytest.fixture
def pair() -> Iterator[tuple[World, FakeAgent, FakeAgent]]:
    one, two = FakeAgent("one"), FakeAgent("two")
    world = World(one, two)
    one.own(0, 1, 2, 3)
    world.owners = dict.fromkeys(range(4), "one")
    world.claims |= dict.fromkeys(range(4), 5)
    yield world, one, two
    world.watch.close()


def test_a_newcomer_follows_first_and_is_ready_when_warm(pair: tuple[World, FakeAgent, FakeAgent]) -> None:
    world, _, two = pair
    world.round()
    [(followed, _)] = two.told
    assert len(followed) == 2
    assert world.steward.ready_moves() == {}, "it was told a moment ago"
    world.round()
    assert world.steward.ready_moves() == dict.fromkeys(followed, "two")
    world.round()
    assert len(two.told) == 1, "who is warm stays warm, and is told nothing new"


def test_a_plan_for_other_owners_is_not_carried_out(pair: tuple[World, FakeAgent, FakeAgent]) -> None:
    """The gate has taken the moves; the latest plan is of before, and must not take them back."""
    world, one, two = pair
    world.round()
    world.round()
    ready = world.steward.ready_moves()
    world.owners |= ready
    assert world.steward.ready_moves() == {}
    # In the middle of it: the new owner has not claimed yet, the old one still says that it is the owner.
    world.round()
    assert world.steward.ready_moves() == {}
    two.own(*ready, claim=9)
    world.claims |= dict.fromkeys(ready, 9)
    world.round()
    assert world.steward.ready_moves() == {}
    followed, known = one.told[-1]
    assert followed == []
    assert known == world.claims, "by which the old owner learns that it was replaced"


def test_a_lost_owner_s_partitions_are_its_replica_s(pair: tuple[World, FakeAgent, FakeAgent]) -> None:
    world, one, two = pair
    world.steward._standby_replicas = 1
    world.round()
    world.round()
    assert two.told[-1][0] == [0, 1, 2, 3]
    one.there = False
    world.round()
    assert world.steward.ready_moves() == dict.fromkeys(range(4), "two")
    one.there = True
    world.watch._lost.clear()
    assert world.steward.ready_moves() == {}, "it is back before anything has moved"


def test_a_replica_that_failed_is_left_alone_for_a_while(pair: tuple[World, FakeAgent, FakeAgent]) -> None:
    world, _, two = pair
    world.steward._standby_replicas = 1
    world.round()
    told = len(two.told)
    two.statuses[3] = status(3, "FAILED")
    world.round()
    world.round()
    world.round()
    assert len(two.told) == told + 1


def test_whose_claim_is_queued_is_about_to_be_the_owner() -> None:
    """It is not given to another one, who would be fenced by that claim when its turn comes."""
    one, two = FakeAgent("one"), FakeAgent("two")
    world = World(one, two)
    for number in range(4):
        two.statuses[number]["claim_pending"] = True
    pulses = world.watch.look([one, two])  # type: ignore[list-item]
    world.watch.close()
    assert assign(range(4), views_of(pulses)).owners == dict.fromkeys(range(4), "two")


def test_the_gate_s_owner_is_the_owner_whatever_others_say() -> None:
    one, two = FakeAgent("one"), FakeAgent("two")
    world = World(one, two)
    one.own(0, claim=5)
    pulses = world.watch.look([one, two])  # type: ignore[list-item]
    world.watch.close()
    views = {view.agent_id: view for view in views_of(pulses, {0: "two"}, {0: 5})}
    assert views["two"].held[0].claim > views["one"].held[0].claim  # type: ignore[operator]
