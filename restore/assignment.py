"""Who owns which partition, and who follows it. Pure, deterministic, and it moves as little as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from restore.agent_view import AgentView, Held
from restore.planned_moves import planned_moves
from restore.replica_placement import place_replicas

__all__ = ["WARM_LAG_RECORDS", "AgentView", "Held", "Plan", "assign"]

WARM_LAG_RECORDS = 10_000
"""A follower that is at most so far behind takes over in a moment."""
_READINESS = {"FOLLOWING": 0, "FAILED": 2}


@dataclass(frozen=True)
class Plan:
    owners: dict[int, str]
    """Who owns each partition from the next batch on."""
    followers: dict[int, tuple[str, ...]]
    """Who tails it: its replicas, and the target of a move that is under way. Sorted, and never the owner."""
    moves: dict[int, str]
    """Moves under way: who takes the partition over once it is warm."""
    missing_replicas: int
    """Replicas that cannot be placed for want of hosts."""


def assign(
    partitions: Iterable[int],
    agents: Sequence[AgentView],
    standby_replicas: int = 0,
    *,
    begun: Mapping[int, str] | None = None,
    warm_lag_records: int = WARM_LAG_RECORDS,
) -> Plan:
    """The plan for the next batch. ``begun``: the moves of the plan before it, which go on; without them, that is
    told by who follows what.

    1. The present owner stays, if it is alive and not failing at it (the highest claim tells which is present).
    2. What has none goes to the most caught-up agent that has any of it, a draining one only if no other has; else
       to the least loaded one.
    3. Planned moves: off draining agents, and to even out the load. One whose target is warm is done at once.
    4. Replicas.

    Ties are broken by load and id, so that the same input gives the same plan in whatever order it comes.
    """
    if not agents:
        raise ValueError("no agents to assign partitions to")
    agents = sorted(agents, key=lambda agent: agent.agent_id)
    by_id = {agent.agent_id: agent for agent in agents}
    owners = _owners(sorted(set(partitions)), agents)
    moves: dict[int, str] = {}
    for partition, target in planned_moves(owners, agents, begun or {}, warm_lag_records).items():
        if by_id[target].is_warm(partition, warm_lag_records):
            owners[partition] = target
        else:
            moves[partition] = target
    replicas = place_replicas(owners, moves, agents, standby_replicas, warm_lag_records)
    return Plan(
        owners,
        {p: tuple(sorted({*replicas[p], moves[p]} if p in moves else replicas[p])) for p in owners},
        dict(sorted(moves.items())),
        sum(standby_replicas - len(replicas[p]) for p in owners),
    )


def _owners(partitions: Sequence[int], agents: Sequence[AgentView]) -> dict[int, str]:
    willing = {p: [agent for agent in agents if p not in agent.failing] or agents for p in partitions}
    owners = {p: owner for p in partitions if (owner := _present_owner(p, willing[p])) is not None}
    load = Counter(owners.values())
    for take in (_most_caught_up, _least_loaded):
        for partition in partitions:
            if partition not in owners and (owner := take(partition, willing[partition], load)) is not None:
                owners[partition] = owner
                load[owner] += 1
    return dict(sorted(owners.items()))


def _present_owner(partition: int, agents: Iterable[AgentView]) -> str | None:
    claims = [
        (held.claim if held.claim is not None else -1, agent.agent_id)
        for agent in agents
        if (held := agent.held.get(partition)) is not None and held.phase in ("ACTIVE", "RESTORING")
    ]
    return max(claims)[1] if claims else None


def _most_caught_up(partition: int, agents: Iterable[AgentView], load: Counter[str]) -> str | None:
    holders = [
        (agent.draining, -held.position, _READINESS.get(held.phase, 1), load[agent.agent_id], agent.agent_id)
        for agent in agents
        if (held := agent.held.get(partition)) is not None and held.position is not None
    ]
    return min(holders)[-1] if holders else None


def _least_loaded(partition: int, agents: Iterable[AgentView], load: Counter[str]) -> str | None:
    return min((agent.draining, load[agent.agent_id], agent.agent_id) for agent in agents)[-1]
