"""Who owns what: properties that hold for any agents, and the order of preference."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restore.assignment import WARM_LAG_RECORDS, AgentView, Held, assign
from tests.support.planned_cluster import Cluster, clusters, settled_clusters

Drawn = tuple[int, list[AgentView]]
replica_counts = st.integers(0, 3)


def present_owner(partition: int, agents: list[AgentView]) -> str | None:
    """Who says that it owns it and is not failing at it, with the highest claim."""
    willing = [agent for agent in agents if partition not in agent.failing] or agents
    claims = [
        (-1 if agent.held[partition].claim is None else agent.held[partition].claim, agent.agent_id)
        for agent in willing
        if agent.phase(partition) in ("ACTIVE", "RESTORING")
    ]
    return max(claims)[1] if claims else None


def is_warm(agent: AgentView, partition: int) -> bool:
    held = agent.held.get(partition)
    return held is not None and held.phase == "FOLLOWING" and (held.lag_records or 0) <= WARM_LAG_RECORDS


@given(clusters(), replica_counts)
@settings(deadline=None)
def test_every_partition_has_one_owner_that_exists(cluster: Drawn, replicas: int) -> None:
    partitions, agents = cluster
    plan = assign(range(partitions), agents, replicas)
    assert list(plan.owners) == list(plan.followers) == list(range(partitions))
    assert set(plan.owners.values()) <= {agent.agent_id for agent in agents}
    for partition, target in plan.moves.items():
        assert target in plan.followers[partition]
        assert target != plan.owners[partition]


@given(clusters(), replica_counts, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_the_input_does_not_matter(cluster: Drawn, replicas: int, shuffler: random.Random) -> None:
    partitions, agents = cluster
    expected = assign(range(partitions), agents, replicas)
    numbers = list(range(partitions))
    shuffler.shuffle(numbers)
    shuffled = list(agents)
    shuffler.shuffle(shuffled)
    assert assign(numbers, shuffled, replicas) == expected
    assert assign(range(partitions), agents, replicas) == expected


@given(clusters(), replica_counts)
@settings(deadline=None)
def test_the_present_owner_stays_unless_the_next_one_is_warm(cluster: Drawn, replicas: int) -> None:
    partitions, agents = cluster
    by_id = {agent.agent_id: agent for agent in agents}
    owners = assign(range(partitions), agents, replicas).owners
    for partition in range(partitions):
        present = present_owner(partition, agents)
        if present is not None and owners[partition] != present:
            assert is_warm(by_id[owners[partition]], partition)
            assert by_id[present].draining or by_id[present].phase(partition) == "ACTIVE", "it is being restored"


@given(clusters(phases=["FOLLOWING", "CLOSED", "FAILED"]), replica_counts)
@settings(deadline=None)
def test_a_lost_owner_is_followed_by_the_most_caught_up(cluster: Drawn, replicas: int) -> None:
    partitions, agents = cluster
    owners = assign(range(partitions), agents, replicas).owners
    for partition in range(partitions):
        if present_owner(partition, agents) is not None:
            continue
        willing = [agent for agent in agents if partition not in agent.failing] or agents
        positions = {
            agent.agent_id: held.position
            for agent in willing
            if (held := agent.held.get(partition)) is not None and held.position is not None
        }
        staying = {a.agent_id for a in willing if not a.draining}
        if best := [positions[agent_id] for agent_id in positions if agent_id in staying]:
            assert owners[partition] in staying
            assert positions[owners[partition]] == max(best)
        elif positions and not staying:
            assert positions[owners[partition]] == max(positions.values())


@given(clusters(), replica_counts)
@settings(deadline=None)
def test_who_fails_at_a_partition_gets_it_only_if_all_do(cluster: Drawn, replicas: int) -> None:
    partitions, agents = cluster
    plan = assign(range(partitions), agents, replicas)
    failing = {(agent.agent_id, partition) for agent in agents for partition in agent.failing}
    for partition, owner in plan.owners.items():
        if (owner, partition) in failing:
            assert all(partition in agent.failing for agent in agents)
        assert not any((follower, partition) in failing for follower in plan.followers[partition])


@given(settled_clusters(), st.integers(0, 4))
@settings(deadline=None)
def test_losing_an_agent_without_replicas_moves_exactly_what_it_owned(cluster: Cluster, lost: int) -> None:
    settled = cluster.settle().owners
    assert cluster.plan().owners == settled, "nothing moves without a reason"
    gone = sorted(cluster.agents)[lost % len(cluster.agents)]
    del cluster.agents[gone]
    if cluster.agents:
        plan = cluster.plan()
        moved = {p for p, owner in plan.owners.items() if owner != settled[p]}
        assert moved == {p for p, owner in settled.items() if owner == gone}


@given(settled_clusters())
@settings(deadline=None)
def test_adding_an_agent_moves_its_share_rounded_down(cluster: Cluster) -> None:
    """n partitions and m agents with it: ⌊n / m⌋ moves, all of them to it. Fewer would leave it two behind."""
    cluster.settle()
    cluster.join("agent-new", "host-new")
    plan = cluster.plan()
    assert set(plan.moves.values()) <= {"agent-new"}
    assert len(plan.moves) == len(cluster.partitions) // len(cluster.agents)


@given(st.integers(1, 30), st.integers(1, 6))
def test_new_partitions_are_spread_evenly(partitions: int, count: int) -> None:
    agents = [AgentView(f"agent-{index}") for index in range(count)]
    load = Counter(assign(range(partitions), agents).owners.values())
    assert max(load.values()) - min(load[agent.agent_id] for agent in agents) <= 1


def test_the_most_caught_up_agent_is_next() -> None:
    agents = [
        AgentView("a", {0: Held("FOLLOWING", position=10)}),
        AgentView("b", {0: Held("CLOSED", position=50)}),
        AgentView("c"),
    ]
    assert assign([0], agents).owners == {0: "b"}
    owner = AgentView("d", {0: Held("ACTIVE", claim=1, position=1)})
    assert assign([0], [*agents, owner]).owners == {0: "d"}
    going = AgentView("e", {0: Held("FOLLOWING", position=60)}, draining=True)
    assert assign([0], [*agents, going]).owners == {0: "b"}
    # Nobody else has any of it: it serves while another one is warmed up.
    plan = assign([0], [AgentView("c"), going])
    assert plan.owners == {0: "e"}
    assert plan.moves == {0: "c"}


def test_equally_caught_up_agents_share_what_was_lost() -> None:
    followed = {p: Held("FOLLOWING", position=10, lag_records=0) for p in range(4)}
    assert Counter(assign(range(4), [AgentView("a", followed), AgentView("b", followed)]).owners.values()) == {
        "a": 2,
        "b": 2,
    }


def test_the_least_loaded_agent_is_last() -> None:
    busy = AgentView("a", {p: Held("ACTIVE", claim=1) for p in range(3)})
    assert assign(range(5), [busy, AgentView("b")]).owners == {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}


def test_no_agents() -> None:
    with pytest.raises(ValueError, match="no agents"):
        assign([0], [])
