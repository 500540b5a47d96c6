"""When a replica, or a global table, is too far behind to be worth much. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LagLimits", "replica_warning", "table_warning"]


@dataclass(frozen=True)
class LagLimits:
    """Beyond which a replica shows a warning."""

    seconds: float = 60.0
    records: int = 100_000
    delete_retention_ms: int = 86_400_000
    """Of the changelog: a replica that was away for half of it is rebuilt, as it may have missed deletions."""


def replica_warning(follower: Mapping[str, Any] | None, limits: LagLimits) -> str | None:
    """What to say of a replica that is behind; None if there is nothing to say. None: it is still catching up."""
    if follower is None:
        return None
    lag_records, lag_seconds = follower["lag_records"], follower["lag_seconds"]
    if lag_seconds * 1000 > limits.delete_retention_ms / 2:
        return (
            f"is {lag_seconds:.0f} s behind, more than half of delete.retention.ms={limits.delete_retention_ms}: it "
            "may have missed deletions and is rebuilt before it is used"
        )
    if lag_seconds > limits.seconds or (lag_records > limits.records and lag_seconds > 0):
        return (
            f"is {lag_records} records and {lag_seconds:.0f} s behind; check its machine, its disk and the broker: "
            "taking over from it would have to wait for the rest"
        )
    return None


def table_warning(status: Mapping[str, Any], limits: LagLimits) -> str | None:
    """What to say of a global table at an agent; None if there is nothing to say, or it is still catching up."""
    lag_records, lag_seconds = status["lag_records"], status["lag_seconds"]
    if status["error"]:
        return f"has failed and is started again: {status['error']['message']}"
    if lag_seconds is None or lag_records is None:
        return None
    if lag_seconds > limits.seconds or (lag_records > limits.records and lag_seconds > 0):
        return (
            f"is {lag_records} records and {lag_seconds:.0f} s behind, and look-ups answer with what it has; check "
            "the agent's machine, its disk and the broker"
        )
    return None
