"""Clusters for tests of the assignment: arbitrary ones, and ones that do what a plan says, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from restore.assignment import WARM_LAG_RECORDS, AgentView, Held, Plan, assign

PHASES = ["ACTIVE", "RESTORING", "FOLLOWING", "CLOSED", "FAILED"]
LAGS = st.sampled_from([0, 10, WARM_LAG_RECORDS, WARM_LAG_RECORDS + 1, 1_000_000])


@st.composite
def clusters(draw: st.DrawFn, phases: Sequence[str] = PHASES) -> tuple[int, list[AgentView]]:
    """Anything that a driver could be told, likely or not."""
    partitions = draw(st.integers(1, 12))
    number = st.integers(0, partitions - 1)
    helds = st.builds(
        Held,
        phase=st.sampled_from(phases),
        claim=st.none() | st.integers(0, 20),
        position=st.none() | st.integers(0, 20),
        lag_records=st.none() | LAGS,
    )
    return partitions, [
        AgentView(
            f"agent-{index}",
            draw(st.dictionaries(number, helds)),
            draw(st.just(frozenset()) | st.frozensets(number)),
            host=draw(st.sampled_from(["", "x", "y", "z"])),
            rack=draw(st.sampled_from([None, "r", "s", "t"])),
            draining=draw(st.integers(0, 3)) == 0,
        )
        for index in range(draw(st.integers(1, 5)))
    ]


@st.composite
def settled_clusters(draw: st.DrawFn, shared_hosts: bool = True) -> Cluster:
    """Every partition is served by someone, and nothing else is known."""
    agents = draw(st.integers(1, 5))
    hosts = draw(st.integers(1, agents)) if shared_hosts else agents
    racks = draw(st.sampled_from([0, 1, 2]))
    cluster = Cluster()
    for index in range(agents):
        cluster.join(f"agent-{index}", f"host-{index % hosts}", f"rack-{index % racks}" if racks else None)
    for partition in range(draw(st.integers(1, 16))):
        cluster.own(partition, f"agent-{draw(st.integers(0, agents - 1))}")
    return cluster


class Cluster:
    """Agents that follow and claim as they are told; how fast a follower catches up is up to the test."""

    def __init__(self) -> None:
        self.agents: dict[str, AgentView] = {}
        self.partitions: list[int] = []
        self.owner_changes: Counter[int] = Counter()

    def join(self, agent_id: str, host: str = "", rack: str | None = None) -> None:
        self.agents[agent_id] = AgentView(agent_id, {}, host=host, rack=rack)

    def drain(self, agent_id: str) -> None:
        self.agents[agent_id] = replace(self.agents[agent_id], draining=True)

    def own(self, partition: int, agent_id: str) -> None:
        self.partitions.append(partition)
        self._hold(agent_id, partition, Held("ACTIVE", claim=1, position=100))

    def plan(self, standby_replicas: int = 0, begun: Mapping[int, str] | None = None) -> Plan:
        return assign(self.partitions, list(self.agents.values()), standby_replicas, begun=begun)

    def owners(self) -> dict[int, str]:
        return {
            p: agent.agent_id for p in self.partitions for agent in self.agents.values() if agent.phase(p) == "ACTIVE"
        }

    def load(self) -> list[int]:
        """Of those that stay."""
        counts = Counter(self.owners().values())
        return [counts[agent.agent_id] for agent in self.agents.values() if not agent.draining]

    def apply(self, plan: Plan, lag_records: int = 0) -> None:
        """Owners own, followers follow (new ones with this lag, others with the same as before), the rest closes."""
        before = self.owners()
        for partition in self.partitions:
            self.owner_changes[partition] += before.get(partition, plan.owners[partition]) != plan.owners[partition]
            for agent in list(self.agents.values()):
                held = agent.held.get(partition)
                if agent.agent_id == plan.owners[partition]:
                    self._hold(agent.agent_id, partition, Held("ACTIVE", claim=1, position=100))
                elif agent.agent_id in plan.followers[partition]:
                    if held is None or held.phase != "FOLLOWING":
                        self._hold(agent.agent_id, partition, Held("FOLLOWING", None, 100, lag_records))
                elif held is not None:
                    self._hold(agent.agent_id, partition, replace(held, phase="CLOSED", lag_records=None, claim=None))

    def settle(self, standby_replicas: int = 0) -> Plan:
        """Until nothing is left to do."""
        for _ in range(50):
            plan = self.plan(standby_replicas)
            before = dict(self.agents)
            self.apply(plan)
            if self.agents == before and not plan.moves:
                return plan
        raise AssertionError("it does not settle")

    def _hold(self, agent_id: str, partition: int, held: Held) -> None:
        agent = self.agents[agent_id]
        self.agents[agent_id] = replace(agent, held={**agent.held, partition: held})
