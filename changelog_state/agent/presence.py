"""How an agent is known to others: the answer to ``hello``, the content of agent.json and of its registration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from changelog_state._version import __version__
from changelog_state.agent.registry import Registry

__all__ = ["Presence"]


@dataclass
class Presence:
    registry: Registry
    socket: str
    """Its unix address: for everybody on this machine."""
    address: str
    """Its TCP address if it advertises one, else the unix address."""
    host: str
    """What is lost together: replicas never share it with their owner."""
    rack: str | None = None

    def describe(self) -> dict[str, Any]:
        return {
            "id": self.registry.agent_id,
            "incarnation": self.registry.incarnation,
            "address": self.address,
            "socket": self.socket,
            "host": self.host,
            "rack": self.rack,
            "pid": os.getpid(),
            "state_dir": str(self.registry.state_dir),
            "version": __version__,
            "draining": self.registry.draining,
        }
