"""Ownership that moves while all is well: as seldom as possible, to someone warm, and never back and forth."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from restore.assignment import WARM_LAG_RECORDS, AgentView, Held, assign
from tests.support.planned_cluster import Cluster, clusters, settled_clusters

COLD = WARM_LAG_RECORDS + 1_000


def fewest_moves(load: list[int]) -> int:
    """What stands out above the even share; the most loaded keep the remainder."""
    share, more = divmod(sum(load), len(load))
    ordered = sorted(load, reverse=True)
    return sum(max(0, count - share - (index < more)) for index, count in enumerate(ordered))


def catch_up(cluster: Cluster, chance: random.Random) -> None:
    """Every follower reads something, some faster than others."""
    for agent in list(cluster.agents.values()):
        held = {
            p: replace(one, lag_records=max(0, one.lag_records - chance.choice([10, 500, 5_000])))
            if one.lag_records is not None
            else one
            for p, one in agent.held.items()
        }
        cluster.agents[agent.agent_id] = replace(agent, held=held)


@given(settled_clusters(), st.integers(0, 2))
@settings(deadline=None)
def test_the_load_is_evened_out_with_the_fewest_moves(cluster: Cluster, replicas: int) -> None:
    before = cluster.owners()
    needed = fewest_moves(cluster.load())
    assert len(cluster.plan(replicas).moves) == needed
    settled = cluster.settle(replicas).owners
    assert sum(settled[p] != before[p] for p in settled) == needed
    assert max(cluster.load()) - min(cluster.load()) <= 1


@given(settled_clusters(), st.integers(0, 2), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_moves_come_to_an_end_and_none_is_done_twice(
    cluster: Cluster, replicas: int, drained: int, chance: random.Random
) -> None:
    going = sorted(cluster.agents)[: min(drained, len(cluster.agents) - 1)]
    for agent_id in going:
        cluster.drain(agent_id)
    for _ in range(400):
        plan = cluster.plan(replicas)
        before = dict(cluster.agents)
        cluster.apply(plan, COLD)
        if cluster.agents == before and not plan.moves:
            break
        catch_up(cluster, chance)
    assert cluster.plan(replicas).moves == {}
    assert max(cluster.load()) - min(cluster.load()) <= 1
    assert max(cluster.owner_changes.values()) <= 1
    assert not set(going) & set(cluster.owners().values())


@given(settled_clusters(), st.integers(0, 4))
@settings(deadline=None)
def test_a_draining_agent_serves_until_the_others_are_warm(cluster: Cluster, index: int) -> None:
    before = cluster.settle().owners
    going = sorted(cluster.agents)[index % len(cluster.agents)]
    cluster.drain(going)
    plan = cluster.plan()
    assert plan.owners == before
    if len(cluster.agents) == 1:
        assert plan.moves == {}, "there is nobody to move to"
        return
    assert set(plan.moves) == {p for p, owner in before.items() if owner == going}
    after = cluster.settle().owners
    assert {p for p in after if after[p] != before[p]} == set(plan.moves)


@given(settled_clusters(), st.integers(0, 2), st.integers(0, 2), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_move_that_was_begun_goes_on(cluster: Cluster, replicas: int, drained: int, chance: random.Random) -> None:
    """However far each of the followers has come, as long as none is warm."""
    for agent_id in sorted(cluster.agents)[:drained]:
        cluster.drain(agent_id)
    begun = cluster.plan(replicas)
    cluster.apply(begun, 100 * COLD)
    for _ in range(3):
        catch_up(cluster, chance)
        assert cluster.plan(replicas, begun.moves) == begun
        if not replicas:
            assert cluster.plan() == begun, "the followers tell which moves were begun"


@given(settled_clusters(shared_hosts=False), st.integers(1, 2), st.integers(0, 2), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_driver_that_remembers_nothing_lets_followers_follow(
    cluster: Cluster, replicas: int, drained: int, chance: random.Random
) -> None:
    for agent_id in sorted(cluster.agents)[:drained]:
        cluster.drain(agent_id)
    begun = cluster.plan(replicas)
    cluster.apply(begun, 100 * COLD)
    for _ in range(3):
        catch_up(cluster, chance)
        plan = cluster.plan(replicas)
        assert plan.owners == begun.owners
        assert all(set(plan.followers[p]) <= set(begun.followers[p]) for p in begun.followers), "one begins anew"
        cluster.apply(plan, 100 * COLD)


@given(clusters())
@settings(deadline=None)
def test_nobody_moves_to_an_agent_that_is_to_go_or_fails(cluster: tuple[int, list[AgentView]]) -> None:
    partitions, agents = cluster
    by_id = {agent.agent_id: agent for agent in agents}
    for partition, target in assign(range(partitions), agents).moves.items():
        assert not by_id[target].draining
        assert partition not in by_id[target].failing


@given(clusters())
@settings(deadline=None)
def test_when_all_drain_owners_stay(cluster: tuple[int, list[AgentView]]) -> None:
    partitions, agents = cluster
    plan = assign(range(partitions), [replace(agent, draining=True) for agent in agents], 1)
    assert plan.moves == {}
    assert set(plan.followers.values()) == {()}
    assert plan.missing_replicas == partitions


def test_a_follower_is_the_first_choice_and_takes_over_when_warm() -> None:
    owner = AgentView("a", {p: Held("ACTIVE", claim=1, position=90_000) for p in range(4)})
    cold = AgentView("b", {2: Held("FOLLOWING", None, 50_000, 40_000), 1: Held("CLOSED", None, 80_000)})
    plan = assign(range(4), [owner, cold])
    assert plan.moves == {1: "b", 2: "b"}, "what is on its disk need not be read from the beginning"
    assert plan.owners == dict.fromkeys(range(4), "a")
    warm = AgentView("b", {2: Held("FOLLOWING", None, 89_990, 10)})
    plan = assign(range(4), [owner, warm])
    assert plan.owners == {0: "a", 1: "a", 2: "b", 3: "a"}
    assert plan.moves == {0: "b"}
    for lag, owner_of_2 in ((WARM_LAG_RECORDS, "b"), (WARM_LAG_RECORDS + 1, "a")):
        follower = AgentView("b", {2: Held("FOLLOWING", None, 50_000, lag)})
        assert assign(range(4), [owner, follower]).owners[2] == owner_of_2
    unknown = AgentView("b", {2: Held("FOLLOWING", None, 90_000)})
    assert 2 in assign(range(4), [owner, unknown]).moves, "a lag that is not known may be anything"


def test_what_is_being_restored_is_not_moved_to_even_out_the_load() -> None:
    owner = AgentView("a", {p: Held("RESTORING", claim=1) for p in range(4)})
    plan = assign(range(4), [owner, AgentView("b", {0: Held("FOLLOWING", lag_records=0)})])
    assert plan.moves == {}
    assert set(plan.owners.values()) == {"a"}


def test_which_moves_were_begun_is_remembered_or_told_by_the_followers() -> None:
    cold, warm = Held("FOLLOWING", None, 50_000, 40_000), Held("FOLLOWING", None, 90_000, 0)
    owner = AgentView("a", {p: Held("ACTIVE", 1, 90_000) for p in range(3)}, host="x")
    other = AgentView("b", {0: cold, 1: warm})
    assert assign(range(3), [owner, other]).owners[1] == "b"
    assert assign(range(3), [owner, other], begun={0: "b"}).moves == {0: "b"}, "even if another could be done sooner"

    # One replica of each is asked for: the second follower of 1 is to take it over.
    beside = AgentView("c", {1: cold, 3: Held("ACTIVE", 1, 90_000), 4: Held("ACTIVE", 1, 90_000)})
    assert assign(range(5), [owner, AgentView("b", {0: cold, 1: cold}), beside], 1).moves == {1: "b"}

    # A follower on the owner's host can be nothing but the target of a move.
    leaving = AgentView("a", {p: Held("ACTIVE", 1, 90_000) for p in range(2)}, host="x", draining=True)
    agents = [leaving, AgentView("b", {0: cold, 1: cold}), AgentView("c", {1: cold}, host="x")]
    assert assign(range(2), agents, 1).moves == {0: "b", 1: "c"}
