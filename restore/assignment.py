"""Who owns which partition. Pure, deterministic, and it moves as little as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["AgentView", "Held", "assign"]


@dataclass(frozen=True)
class Held:
    """What one agent has of one partition."""

    phase: str
    claim: int | None = None
    position: int | None = None


@dataclass(frozen=True)
class AgentView:
    agent_id: str
    held: Mapping[int, Held] = field(default_factory=dict)
    failing: frozenset[int] = frozenset()
    """Partitions that this agent has just failed at: someone else goes first."""


def assign(partitions: Iterable[int], agents: Sequence[AgentView]) -> dict[int, str]:
    """Partition → agent.

    1. The present owner, if it is alive and not failing at it (the highest claim tells which is present).
    2. Else the most caught-up agent that has any of it.
    3. Else the least loaded one; ties by id, so that the same input gives the same plan.
    """
    if not agents:
        raise ValueError("no agents to assign partitions to")
    owners: dict[int, str] = {}
    load: Counter[str] = Counter()
    homeless: list[int] = []
    for partition in sorted(partitions):
        willing = [agent for agent in agents if partition not in agent.failing] or list(agents)
        owner = _present_owner(partition, willing) or _most_caught_up(partition, willing)
        if owner is None:
            homeless.append(partition)
        else:
            owners[partition] = owner
            load[owner] += 1
    for partition in homeless:
        willing = [agent for agent in agents if partition not in agent.failing] or list(agents)
        owner = min((agent.agent_id for agent in willing), key=lambda agent_id: (load[agent_id], agent_id))
        owners[partition] = owner
        load[owner] += 1
    return owners


def _present_owner(partition: int, agents: Iterable[AgentView]) -> str | None:
    claims = [
        (held.claim if held.claim is not None else -1, agent.agent_id)
        for agent in agents
        if (held := agent.held.get(partition)) is not None and held.phase in ("ACTIVE", "RESTORING")
    ]
    return max(claims)[1] if claims else None


def _most_caught_up(partition: int, agents: Iterable[AgentView]) -> str | None:
    positions = [
        (held.position, agent.agent_id)
        for agent in agents
        if (held := agent.held.get(partition)) is not None and held.position is not None
    ]
    return max(positions)[1] if positions else None
