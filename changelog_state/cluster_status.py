"""What ``status()`` says of a partition and of a global table, out of what all agents have of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from changelog_state.config import TableConfig
from changelog_state.routes import Answering
from restore.figures import RestoreFigures
from restore.replica_lag import LagLimits, replica_warning, table_warning

__all__ = ["partition_status", "table_statuses"]


def partition_status(
    number: int, end_offset: int | None, answering: Sequence[Answering], limits: LagLimits
) -> dict[str, Any]:
    owner = _present_owner(number, answering)
    # Without an owner, what is known of whoever has the most of it.
    holder = owner or max(answering, key=lambda one: _position(one, number), default=None)
    status = None if holder is None else holder.partitions.get(number)
    position = status["position"] if status is not None else None
    return {
        "partition": number,
        "owner": owner.agent["id"] if owner is not None else None,
        "phase": status["phase"] if status is not None else "CLOSED",
        "last_batch": status["last_batch"] if status is not None else None,
        "position": position,
        "end_offset": end_offset,
        "lag_records": _lag(status, position, end_offset),
        "replicas": [
            _replica(one, one.partitions[number], limits)
            for one in sorted(answering, key=lambda one: str(one.agent["id"]))
            if one is not owner and number in one.partitions and one.partitions[number]["tailing"]
        ],
        "restore": _restore(status),
        "error": status["error"] if status is not None else None,
    }


def table_statuses(
    wanted: Mapping[str, TableConfig], answering: Sequence[Answering], limits: LagLimits
) -> list[dict[str, Any]]:
    """Of those that the service has, and of what else agents follow for its application."""
    topics = {name: config.changelog_topic for name, config in wanted.items()}
    for one in answering:
        topics = {status["table"]: status["topic"] for status in one.tables} | topics
    return [
        {
            "table": name,
            "topic": topic,
            "agents": [
                _table_at(one, status, limits)
                for one in sorted(answering, key=lambda one: str(one.agent["id"]))
                for status in one.tables
                if status["table"] == name
            ],
        }
        for name, topic in sorted(topics.items())
    ]


def _table_at(one: Answering, status: Mapping[str, Any], limits: LagLimits) -> dict[str, Any]:
    known = {name: status[name] for name in ("topic", "phase", "ready", "lag_records", "lag_seconds", "error")}
    return {
        "agent": one.agent["id"],
        "host": one.agent["host"],
        **known,
        "warning": table_warning(status, limits),
    }


def _present_owner(number: int, answering: Sequence[Answering]) -> Answering | None:
    """The highest claim tells; an agent that was replaced while it was cut off may not know it yet."""
    owners = [
        one for one in answering if one.partitions.get(number, {"phase": ""})["phase"] in ("ACTIVE", "RESTORING")
    ]
    return max(owners, key=lambda one: one.partitions[number]["claim"] or -1, default=None)


def _position(one: Answering, number: int) -> int:
    status = one.partitions.get(number)
    return -1 if status is None or status["position"] is None else int(status["position"])


def _replica(one: Answering, status: Mapping[str, Any], limits: LagLimits) -> dict[str, Any]:
    follower = status["follower"]
    return {
        "agent": one.agent["id"],
        "host": one.agent["host"],
        "phase": status["phase"],
        "position": follower["position"] if follower else status["position"],
        "lag_records": follower["lag_records"] if follower else None,
        "lag_seconds": follower["lag_seconds"] if follower else None,
        "warning": replica_warning(follower, limits),
        "restore": None if follower else _restore(status),
    }


def _lag(status: Mapping[str, Any] | None, position: int | None, end_offset: int | None) -> int | None:
    """Offsets not yet read. An owner has everything, though transaction markers follow its position."""
    if end_offset is None or position is None:
        return end_offset
    if status is not None and status["phase"] == "ACTIVE":
        return 0
    return max(0, end_offset - position)


def _restore(status: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The figures of the latest restore here, which may be over."""
    if status is None or status["restore"] is None:
        return None
    figures = RestoreFigures.of(status["partition"], status["phase"], status["restore"])
    return dict(status["restore"]) | figures.to_json()
