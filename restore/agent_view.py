"""What the driver knows of an agent when it decides who owns what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["FAR_BEHIND", "AgentView", "Held", "newest_position"]

FAR_BEHIND = 1 << 62
"""Of who has nothing of a partition, in records."""


@dataclass(frozen=True)
class Held:
    """What one agent has of one partition."""

    phase: str
    claim: int | None = None
    position: int | None = None
    lag_records: int | None = None
    """Of a follower; None: not known."""


@dataclass(frozen=True)
class AgentView:
    agent_id: str
    held: Mapping[int, Held] = field(default_factory=dict)
    failing: frozenset[int] = frozenset()
    """Partitions that this agent has just failed at: someone else goes first."""
    host: str = ""
    """The failure domain. Empty: the agent is one by itself."""
    rack: str | None = None
    draining: bool = False
    """It is to go: it gets nothing new, and what it owns moves away."""

    @property
    def domain(self) -> str:
        return self.host or self.agent_id

    def phase(self, partition: int) -> str | None:
        held = self.held.get(partition)
        return None if held is None else held.phase

    def follows(self, partition: int) -> bool:
        return self.phase(partition) == "FOLLOWING"

    def is_warm(self, partition: int, warm_lag_records: int) -> bool:
        """It follows so closely that taking the partition over is a matter of a moment."""
        held = self.held.get(partition)
        return (
            held is not None
            and held.phase == "FOLLOWING"
            and held.lag_records is not None
            and held.lag_records <= warm_lag_records
        )

    def behind(self, partition: int, end: int) -> int:
        """How many records it would have to read; a store that lies closed on its disk counts as well."""
        held = self.held.get(partition)
        if held is None:
            return FAR_BEHIND
        if held.phase == "FOLLOWING" and held.lag_records is not None:
            return held.lag_records
        return FAR_BEHIND if held.position is None else max(0, end - held.position)


def newest_position(partition: int, agents: Iterable[AgentView]) -> int:
    """The end of the log, as far as any agent has seen it."""
    held = (agent.held.get(partition) for agent in agents)
    return max((one.position for one in held if one is not None and one.position is not None), default=0)
