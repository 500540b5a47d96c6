"""Which partitions are to change hands while all is well: a draining agent's, and what evens out the load.

Nothing waits for such a move: the agent that takes over follows the partition first, and its owner goes on serving.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from restore.agent_view import AgentView, newest_position

__all__ = ["planned_moves"]

_Move = tuple[int, str]
_Choose = Callable[[Collection[int], Collection[str]], _Move | None]


def planned_moves(owners: Mapping[int, str], agents: Sequence[AgentView]) -> dict[int, str]:
    """Partition → who is to take it over.

    1. All that draining agents own goes to the least loaded of the others.
    2. Then the most loaded gives to the least loaded while they differ by more than one. That is the smallest number
       of moves: an agent that gives stays above those that are given to, so none does both.

    Among moves that serve the load equally well, one goes first whose target follows the partition already (the
    warmest first) or has a store of it on its disk. So a move that was begun is chosen again until it is done.
    """
    by_id = {agent.agent_id: agent for agent in agents}
    load = Counter({agent.agent_id: 0 for agent in agents if not agent.draining})
    load.update(owner for owner in owners.values() if owner in load)
    choose = _chooser(owners, agents)
    moves: dict[int, str] = {}

    leaving = {p for p, owner in owners.items() if by_id[owner].draining}
    while move := _off_draining(leaving, load, choose):
        partition, target = move
        moves[partition] = target
        leaving.remove(partition)
        load[target] += 1

    # What is just being restored is not moved about: its owner has not even begun to serve.
    settled = {p: owner for p, owner in owners.items() if owner in load and by_id[owner].phase(p) == "ACTIVE"}
    while move := _evening(settled, load, choose):
        partition, target = move
        moves[partition] = target
        load[settled.pop(partition)] -= 1
        load[target] += 1
    return moves


def _off_draining(leaving: Collection[int], load: Counter[str], choose: _Choose) -> _Move | None:
    for level in sorted(set(load.values())) if leaving else ():
        if move := choose(leaving, {agent_id for agent_id in load if load[agent_id] == level}):
            return move
    return None


def _evening(settled: Mapping[int, str], load: Counter[str], choose: _Choose) -> _Move | None:
    levels = sorted(set(load.values()))
    for high in reversed(levels):
        for low in levels:
            if high - low <= 1:
                break
            given = {p for p, owner in settled.items() if load[owner] == high}
            if move := choose(given, {agent_id for agent_id in load if load[agent_id] == low}):
                return move
    return None


def _chooser(owners: Mapping[int, str], agents: Sequence[AgentView]) -> _Choose:
    """The best of all moves of some partitions to some agents."""
    ranked = []
    for partition in owners:
        end = newest_position(partition, agents)
        ranked += [
            (not agent.follows(partition), agent.behind(partition, end), partition, agent.agent_id)
            for agent in agents
            if partition in agent.held and partition not in agent.failing and not agent.draining
        ]
    ranked.sort()
    failing = {agent.agent_id: agent.failing for agent in agents}

    def choose(partitions: Collection[int], targets: Collection[str]) -> _Move | None:
        for _, _, partition, target in ranked:
            if partition in partitions and target in targets:
                return partition, target
        ordered = sorted(targets)
        for partition in sorted(partitions):
            for target in ordered:
                if partition not in failing[target]:
                    return partition, target
        return None

    return choose
