"""From what is seen of partitions, one look after the other, to what happened to their restores. Pure.

::

    start ──▶ batch … ──▶ end
      └─────────┴──▶ suspended (agent lost, partition given up, begun anew) or failed ──▶ start …
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from restore.figures import RestoreFigures

__all__ = ["RestoreEvent", "RestoreWatch", "Sighting"]

Kind = Literal["start", "batch", "end", "suspended", "failed"]


@dataclass(frozen=True)
class Sighting:
    """One partition at one moment."""

    partition: int
    owner: str
    phase: str
    figures: RestoreFigures | None = None
    """Of the latest restore there, which may be long over."""
    error: Exception | None = None


@dataclass(frozen=True)
class RestoreEvent:
    kind: Kind
    figures: RestoreFigures
    error: Exception | None = None


@dataclass(frozen=True)
class _Seen:
    sighting: Sighting
    open: bool = False


class RestoreWatch:
    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self.figures: dict[int, RestoreFigures] = {}
        """The latest of every restore that was seen under way; one that was suspended stays as it stood."""

    def observe(self, sightings: Iterable[Sighting]) -> list[RestoreEvent]:
        """What happened since the last look. The first look at an owner only tells what was before."""
        events: list[RestoreEvent] = []
        for sighting in sightings:
            seen = self._seen.get(sighting.partition)
            if seen is not None and seen.sighting.owner != sighting.owner:
                events += _suspended(seen)
                seen = None
            found, is_open = _first(sighting) if seen is None else _next(seen, sighting)
            events += found
            known = sighting.figures or (seen.sighting.figures if seen is not None else None)
            self._seen[sighting.partition] = _Seen(replace(sighting, figures=known), is_open)
        self.figures |= {event.figures.partition: event.figures for event in events}
        return events

    def lose(self, owner: str) -> list[RestoreEvent]:
        """The agent does not answer any more: whatever it was restoring will be begun again."""
        lost = [partition for partition, seen in self._seen.items() if seen.sighting.owner == owner]
        return [event for partition in lost for event in _suspended(self._seen.pop(partition))]


def _first(now: Sighting) -> tuple[list[RestoreEvent], bool]:
    if now.phase == "RESTORING" and now.figures is not None:
        return [RestoreEvent("start", now.figures)], True
    return [], False


def _next(seen: _Seen, now: Sighting) -> tuple[list[RestoreEvent], bool]:
    before, is_open = seen.sighting.figures, seen.open
    news = now.figures if now.figures is not None and not _same(now.figures, before) else None
    events: list[RestoreEvent] = []
    if is_open and (now.phase in ("CLOSED", "FOLLOWING") or _begun_anew(before, now)):
        events += _suspended(seen)
        is_open = False
    if news is not None and not is_open and now.phase in ("RESTORING", "ACTIVE", "FAILED"):
        events.append(RestoreEvent("start", news))
        is_open = True
    elif news is not None and is_open and now.phase == "RESTORING":
        events.append(RestoreEvent("batch", news))
    latest = now.figures or before
    if now.phase == "ACTIVE" and is_open and latest is not None:
        events.append(RestoreEvent("end", latest))
        is_open = False
    elif now.phase == "FAILED" and (is_open or seen.sighting.phase != "FAILED"):
        figures = latest or RestoreFigures(now.partition, now.phase, "", 0, 0, 0, 0, 0, 0.0)
        events.append(RestoreEvent("failed", figures, now.error or RuntimeError("the agent gave no reason")))
        is_open = False
    return events, is_open


def _suspended(seen: _Seen) -> list[RestoreEvent]:
    figures = seen.sighting.figures
    return [RestoreEvent("suspended", figures)] if seen.open and figures is not None else []


def _begun_anew(before: RestoreFigures | None, now: Sighting) -> bool:
    """Every claim writes a record of its own, so a restore that was begun anew has another end."""
    if before is None or now.figures is None:
        return now.phase == "RESTORING"
    return (before.start, before.end) != (now.figures.start, now.figures.end)


def _same(one: RestoreFigures, other: RestoreFigures | None) -> bool:
    return other is not None and replace(one, phase=other.phase) == other
