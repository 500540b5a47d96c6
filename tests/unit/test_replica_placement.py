"""Where replicas are kept: never with their owner, best in another rack, and where they have been."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from restore.assignment import AgentView, Held, Plan, assign
from tests.support.planned_cluster import Cluster, clusters, settled_clusters

Drawn = tuple[int, list[AgentView]]
replica_counts = st.integers(1, 3)


def replicas_of(plan: Plan, partition: int) -> list[str]:
    return [agent_id for agent_id in plan.followers[partition] if agent_id != plan.moves.get(partition)]


@given(clusters(), replica_counts)
@settings(deadline=None)
def test_replicas_share_no_host_with_their_owner_or_each_other(cluster: Drawn, count: int) -> None:
    partitions, agents = cluster
    by_id = {agent.agent_id: agent for agent in agents}
    plan = assign(range(partitions), agents, count)
    missing = 0
    for partition, owner in plan.owners.items():
        assert owner not in plan.followers[partition]
        assert list(plan.followers[partition]) == sorted(set(plan.followers[partition]))
        hosts = [by_id[agent_id].domain for agent_id in replicas_of(plan, partition)]
        away = {by_id[owner].domain}
        target = plan.moves.get(partition)
        able = {a.domain for a in agents if not a.draining and partition not in a.failing} - away
        if target is not None:
            assert by_id[target].domain not in hosts, "when it owns the partition, they are still apart"
        assert len(set(hosts)) == len(hosts) <= count
        assert set(hosts) <= able
        # The target of a move stands in as long as there is no other host.
        missing += count - min(count, len(able))
        assert len(hosts) == min(count, len(able - {by_id[target].domain} if target is not None else able))
    assert plan.missing_replicas == missing


@given(clusters(), replica_counts)
@settings(deadline=None)
def test_draining_agents_follow_nothing(cluster: Drawn, count: int) -> None:
    partitions, agents = cluster
    going = {agent.agent_id for agent in agents if agent.draining}
    for followers in assign(range(partitions), agents, count).followers.values():
        assert not going & set(followers)


@given(st.lists(st.sampled_from("rst"), min_size=1, max_size=7), st.integers(1, 12), replica_counts)
@settings(deadline=None)
def test_replicas_prefer_other_racks(racks: list[str], partitions: int, count: int) -> None:
    agents = [AgentView(f"agent-{index}", rack=rack) for index, rack in enumerate(racks)]
    by_id = {agent.agent_id: agent for agent in agents}
    plan = assign(range(partitions), agents, count)
    for partition, followers in plan.followers.items():
        own = by_id[plan.owners[partition]].rack
        used = [by_id[agent_id].rack for agent_id in followers]
        others = set(racks) - {own}
        assert len(set(used) - {own}) == min(count, len(others)), "as many racks as there can be"
        elsewhere = sum(rack != own for rack in racks)
        assert sum(rack != own for rack in used) == min(count, elsewhere)


@given(settled_clusters(), replica_counts)
@settings(deadline=None)
def test_adding_an_agent_moves_no_replica(cluster: Cluster, count: int) -> None:
    """It gets those that had no host before; and where it is to own, the replicas are elsewhere already."""
    before = cluster.settle(count)
    cluster.join("agent-new", "host-new")
    plan = cluster.plan(count)
    for partition, followers in before.followers.items():
        added = {"agent-new"} if partition in plan.moves or len(followers) < count else set()
        assert set(plan.followers[partition]) == set(followers) | added


@given(settled_clusters(), replica_counts, st.integers(0, 4))
@settings(deadline=None)
def test_losing_an_agent_replaces_what_it_had_and_no_more(cluster: Cluster, count: int, lost: int) -> None:
    before = cluster.settle(count)
    gone = sorted(cluster.agents)[lost % len(cluster.agents)]
    del cluster.agents[gone]
    if not cluster.agents:
        return
    plan = cluster.plan(count)
    for partition, followers in before.followers.items():
        if before.owners[partition] != gone:
            if plan.owners[partition] == before.owners[partition] and partition not in plan.moves:
                assert set(followers) - {gone} <= set(plan.followers[partition])
        elif followers:
            assert plan.owners[partition] in followers, "what was hot takes over"


@given(st.integers(2, 6), st.integers(1, 24), replica_counts)
def test_replicas_are_spread_evenly(count: int, partitions: int, replicas: int) -> None:
    agents = [AgentView(f"agent-{index}") for index in range(count)]
    plan = assign(range(partitions), agents, replicas)
    followed = [sum(a.agent_id in followers for followers in plan.followers.values()) for a in agents]
    assert max(followed) - min(followed) <= 2


def test_who_follows_already_goes_before_another_rack_and_that_before_a_store_on_disk() -> None:
    owner = AgentView("a", {0: Held("ACTIVE", 1, 1_000)}, rack="r")
    near = AgentView("b", {0: Held("FOLLOWING", None, 900, 100)}, rack="r")
    disk = AgentView("c", {0: Held("CLOSED", None, 990)}, rack="s")
    empty = AgentView("d", rack="s")
    same = AgentView("e", {0: Held("CLOSED", None, 1_000)}, rack="r")
    everyone = [empty, same, disk, near, owner]
    assert assign([0], everyone, 1).followers == {0: ("b",)}
    far = AgentView("b", {0: Held("FOLLOWING", None, 10)}, rack="r")
    assert assign([0], [far, *everyone[:3], owner], 1).followers == {0: ("b",)}, "it has begun, and nobody else has"
    assert assign([0], [a for a in everyone if a is not near], 1).followers == {0: ("c",)}
    assert assign([0], [empty, same, owner], 1).followers == {0: ("d",)}


def test_with_two_hosts_the_target_of_a_move_is_the_replica_and_then_the_old_owner() -> None:
    owner = AgentView("a", {p: Held("ACTIVE", 1, 90_000) for p in range(2)})
    plan = assign(range(2), [owner, AgentView("b")], 1)
    assert plan.followers == {0: ("b",), 1: ("b",)}
    assert plan.moves == {0: "b"}
    assert plan.missing_replicas == 0
    warm = AgentView("b", {p: Held("FOLLOWING", None, 90_000, 0) for p in range(2)})
    plan = assign(range(2), [owner, warm], 1)
    assert plan.owners == {0: "b", 1: "a"}
    assert plan.followers == {0: ("a",), 1: ("b",)}
