"""Which partitions are to change hands while all is well: a draining agent's, and what evens out the load.

Nothing waits for such a move: the agent that takes over follows the partition first, and its owner goes on serving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from restore.agent_view import AgentView, newest_position

__all__ = ["planned_moves"]

_Rank = tuple[int, bool, int, int, int]


def planned_moves(
    owners: Mapping[int, str], agents: Sequence[AgentView], begun: Mapping[int, str], warm_lag_records: int
) -> dict[int, str]:
    """Partition → who is to take it over: the fewest moves that empty draining agents and even out the others.

    Moves that were begun come first, if they still serve that end; then those to who follows the partition already,
    to who has a store of it on disk, and any others.
    """
    moves = _Moves(owners, agents, begun, warm_lag_records)
    while moves.add_one():
        pass
    return moves.chosen


class _Shares:
    """Who has too much and who too little. Of m agents and n partitions, n mod m agents keep one more."""

    def __init__(self, load: Mapping[str, int], total: int) -> None:
        share, with_one_more = divmod(total, max(1, len(load)))
        above = {agent_id: count - share - 1 for agent_id, count in load.items() if count > share}
        below = {agent_id: share - count for agent_id, count in load.items() if count <= share}
        # NOTE: any one of these may go first. Whoever gives or takes one more, the rest still comes out even.
        self.givers = {agent_id for agent_id, count in above.items() if count or len(above) > with_one_more}
        self.takers = {agent_id for agent_id, count in below.items() if count or len(above) < with_one_more}


class _Moves:
    def __init__(
        self, owners: Mapping[int, str], agents: Sequence[AgentView], begun: Mapping[int, str], warm_lag_records: int
    ) -> None:
        by_id = {agent.agent_id: agent for agent in agents}
        self.chosen: dict[int, str] = {}
        self._total = len(owners)
        self._staying = {agent.agent_id: agent for agent in agents if not agent.draining}
        self._load = Counter(dict.fromkeys(self._staying, 0))
        self._load.update(owner for owner in owners.values() if owner in self._staying)
        # What is just being restored is not moved about: its owner has not even begun to serve.
        self._movable = {
            p: owner for p, owner in owners.items() if by_id[owner].draining or by_id[owner].phase(p) == "ACTIVE"
        }
        self._owners = {p: by_id[owner] for p, owner in self._movable.items()}
        self._begun, self._warm_lag_records = begun, warm_lag_records
        self._agents = agents

    @cached_property
    def _known(self) -> list[tuple[_Rank, int, str]]:
        """Moves to who has anything of the partition, or was told to follow it."""
        ends = {p: newest_position(p, self._agents) for p in self._owners}
        return [
            (self._rank(p, agent, ends[p]), p, agent.agent_id)
            for p in self._owners
            for agent in self._staying.values()
            if (p in agent.held or self._begun.get(p) == agent.agent_id) and p not in agent.failing
        ]

    def _rank(self, partition: int, agent: AgentView, end: int) -> _Rank:
        """Lower is better, and stays the same while a follower catches up, until it is warm.

        Who does not remember which moves were begun can tell by the followers: the target is one more than the
        partition's replicas, or is on the owner's host, where a replica would not be.
        """
        behind = agent.behind(partition, end)
        if self._begun.get(partition) == agent.agent_id:
            return 0, False, 0, 0, 0
        if not agent.follows(partition):
            return 2, False, 0, 0, behind
        followers = sum(other.follows(partition) for other in self._staying.values())
        warm = agent.is_warm(partition, self._warm_lag_records)
        return 1, agent.domain != self._owners[partition].domain, -followers, 0 if warm else 1, behind if warm else 0

    def add_one(self) -> bool:
        """False if nothing is left to do."""
        shares = _Shares(self._load, self._total)
        leaving = {p for p, owner in self._movable.items() if owner not in self._load}
        given = leaving | {p for p, owner in self._movable.items() if owner in shares.givers}
        # If those who should take are just failing at it, a draining agent gives to anyone.
        return self._add_best(given, shares.takers) or self._add_best(leaving, set(self._staying))

    def _add_best(self, partitions: Collection[int], targets: Collection[str]) -> bool:
        def by_load(agent_id: str) -> tuple[int, str]:
            return self._load[agent_id], agent_id

        if not partitions or not targets:
            return False
        known = [one for one in self._known if one[1] in partitions and one[2] in targets]
        if known:
            _, partition, agent_id = min(known, key=lambda one: (one[0], one[1], by_load(one[2])))
            return self._add(partition, agent_id)
        ordered = sorted(targets, key=by_load)
        for partition in sorted(partitions):
            for agent_id in ordered:
                if partition not in self._staying[agent_id].failing:
                    return self._add(partition, agent_id)
        return False

    def _add(self, partition: int, target: str) -> bool:
        self.chosen[partition] = target
        owner = self._movable.pop(partition)
        if owner in self._load:
            self._load[owner] -= 1
        self._load[target] += 1
        return True
