"""Who owns what: properties that hold for any agents, and the order of preference."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restore.assignment import AgentView, Held, assign

PHASES = ["ACTIVE", "RESTORING", "FOLLOWING", "CLOSED", "FAILED"]
helds = st.builds(
    Held,
    phase=st.sampled_from(PHASES),
    claim=st.none() | st.integers(0, 20),
    position=st.none() | st.integers(0, 20),
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, list[AgentView]]:
    partitions = draw(st.integers(1, 12))
    number = st.integers(0, partitions - 1)
    agents = [
        AgentView(f"agent-{index}", draw(st.dictionaries(number, helds)), draw(st.frozensets(number)))
        for index in range(draw(st.integers(1, 5)))
    ]
    return partitions, agents


def owners_of(partition: int, agents: list[AgentView]) -> list[tuple[int, str]]:
    """Those who say they own it and are not failing at it, by claim."""
    return sorted(
        (-1 if held.claim is None else held.claim, agent.agent_id)
        for agent in agents
        if (held := agent.held.get(partition)) is not None
        and held.phase in ("ACTIVE", "RESTORING")
        and partition not in agent.failing
    )


@given(clusters())
@settings(deadline=None)
def test_every_partition_has_one_owner_that_exists(cluster: tuple[int, list[AgentView]]) -> None:
    partitions, agents = cluster
    owners = assign(range(partitions), agents)
    assert sorted(owners) == list(range(partitions))
    assert set(owners.values()) <= {agent.agent_id for agent in agents}


@given(clusters(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_the_input_does_not_matter(
    cluster: tuple[int, list[AgentView]], shuffler: random.Random
) -> None:
    partitions, agents = cluster
    expected = assign(range(partitions), agents)
    numbers = list(range(partitions))
    shuffler.shuffle(numbers)
    shuffled = list(agents)
    shuffler.shuffle(shuffled)
    assert assign(numbers, shuffled) == expected
    assert assign(range(partitions), agents) == expected


@given(clusters())
@settings(deadline=None)
def test_the_present_owner_stays(cluster: tuple[int, list[AgentView]]) -> None:
    partitions, agents = cluster
    owners = assign(range(partitions), agents)
    for partition in range(partitions):
        present = owners_of(partition, agents)
        if present:
            assert owners[partition] == present[-1][1], "the highest claim tells"


@given(clusters())
@settings(deadline=None)
def test_who_fails_at_a_partition_gets_it_only_if_all_do(cluster: tuple[int, list[AgentView]]) -> None:
    partitions, agents = cluster
    owners = assign(range(partitions), agents)
    failing = {(agent.agent_id, partition) for agent in agents for partition in agent.failing}
    for partition, owner in owners.items():
        if (owner, partition) in failing:
            assert all(partition in agent.failing for agent in agents)


@given(clusters(), st.integers(0, 4))
@settings(deadline=None)
def test_losing_an_agent_moves_only_what_it_owned(cluster: tuple[int, list[AgentView]], lost: int) -> None:
    """Settle first: everyone owns what was assigned. Then one goes."""
    partitions, agents = cluster
    settled = assign(range(partitions), agents)
    views = [
        AgentView(
            agent.agent_id, {p: Held("ACTIVE", 1, 1) for p, owner in settled.items() if owner == agent.agent_id}
        )
        for agent in agents
    ]
    assert assign(range(partitions), views) == settled, "nothing moves without a reason"
    gone = views.pop(lost % len(views)).agent_id
    if views:
        moved = assign(range(partitions), views)
        assert {p for p in moved if moved[p] != settled[p]} == {p for p in settled if settled[p] == gone}


@given(st.integers(1, 30), st.integers(1, 6))
def test_new_partitions_are_spread_evenly(partitions: int, count: int) -> None:
    agents = [AgentView(f"agent-{index}") for index in range(count)]
    load = Counter(assign(range(partitions), agents).values())
    assert max(load.values()) - min(load[agent.agent_id] for agent in agents) <= 1


def test_the_most_caught_up_agent_is_next() -> None:
    agents = [
        AgentView("a", {0: Held("FOLLOWING", position=10)}),
        AgentView("b", {0: Held("CLOSED", position=50)}),
        AgentView("c"),
    ]
    assert assign([0], agents) == {0: "b"}
    owner = AgentView("d", {0: Held("ACTIVE", claim=1, position=1)})
    assert assign([0], [*agents, owner]) == {0: "d"}


def test_the_least_loaded_agent_is_last() -> None:
    busy = AgentView("a", {p: Held("ACTIVE", claim=1) for p in range(3)})
    assert assign(range(5), [busy, AgentView("b")]) == {0: "a", 1: "a", 2: "a", 3: "b", 4: "b"}


def test_no_agents() -> None:
    with pytest.raises(ValueError, match="no agents"):
        assign([0], [])
