"""Where the hot replicas of a partition are kept: on other hosts than its owner, and wherever they are already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from restore.agent_view import AgentView, newest_position

__all__ = ["place_replicas"]


def place_replicas(
    owners: Mapping[int, str],
    moves: Mapping[int, str],
    agents: Sequence[AgentView],
    standby_replicas: int,
    warm_lag_records: int,
) -> dict[int, tuple[str, ...]]:
    """Partition → its replicas; fewer than asked for if there are not enough hosts.

    Partitions choose one after the other, those with most replicas in place first, so that what is new fills up the
    agents that have fewest.
    """
    by_id = {agent.agent_id: agent for agent in agents}
    willing = [agent for agent in agents if not agent.draining]
    placement = _Placement(willing, warm_lag_records)
    in_place = {p: sum(agent.follows(p) for agent in willing) for p in owners}
    return {
        partition: placement.choose(
            partition, by_id[owners[partition]], by_id.get(moves.get(partition, "")), standby_replicas
        )
        for partition in sorted(owners, key=lambda p: (-in_place[p], p))
    }


class _Placement:
    def __init__(self, agents: Sequence[AgentView], warm_lag_records: int) -> None:
        self._agents = agents
        self._warm_lag_records = warm_lag_records
        self._followed: Counter[str] = Counter()
        self._of_owner: Counter[tuple[str, str]] = Counter()

    def choose(self, partition: int, owner: AgentView, target: AgentView | None, count: int) -> tuple[str, ...]:
        """Hosts differ from each other, from the owner's and, for the time after the move, from its target's.

        If there are not enough for that, the target is the last of the replicas as long as it only follows.
        """
        end = newest_position(partition, [*self._agents, owner])
        chosen: list[AgentView] = []
        hosts = {owner.domain} if target is None else {owner.domain, target.domain}
        racks = set() if target is None else {target.rack}
        while len(chosen) < count:
            able = [a for a in self._agents if a.domain not in hosts and partition not in a.failing]
            if not able:
                break
            followers = [agent for agent in able if agent.follows(partition)]
            best = min(followers or able, key=lambda agent: self._rank(partition, agent, owner, racks, end))
            chosen.append(best)
            hosts.add(best.domain)
            racks.add(best.rack)
        if len(chosen) < count and target is not None and target.domain != owner.domain:
            chosen.append(target)
        for agent in chosen:
            self._followed[agent.agent_id] += 1
            self._of_owner[owner.agent_id, agent.agent_id] += 1
        return tuple(sorted(agent.agent_id for agent in chosen))

    def _rank(
        self, partition: int, agent: AgentView, owner: AgentView, racks: set[str | None], end: int
    ) -> tuple[bool, int, int, int, int, str]:
        cold = not agent.is_warm(partition, self._warm_lag_records)
        rack = 2 if agent.rack in (None, owner.rack) else 1 if agent.rack in racks else 0
        # By powers of two: a store that is left on a disk saves a restore, a few records more or less save nothing.
        behind = agent.behind(partition, end).bit_length()
        agent_id = agent.agent_id
        # An owner's replicas are spread, so that its load is spread as well when it is lost.
        return cold, rack, behind, self._followed[agent_id], self._of_owner[owner.agent_id, agent_id], agent_id
