"""What a partition is at an agent, and which moves are legal.

::

    CLOSED ──▶ RESTORING ──▶ ACTIVE          CLOSED ──▶ FOLLOWING ──▶ RESTORING (promotion) ──▶ ACTIVE
    RESTORING, FOLLOWING, ACTIVE ──▶ CLOSED  (released, or fenced)
    any ──▶ FAILED ──▶ CLOSED                (not claimed again here at once)
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Phase", "check_move"]


class Phase(StrEnum):
    CLOSED = "CLOSED"
    RESTORING = "RESTORING"
    FOLLOWING = "FOLLOWING"
    ACTIVE = "ACTIVE"
    FAILED = "FAILED"


_LEGAL: dict[Phase, frozenset[Phase]] = {
    Phase.CLOSED: frozenset({Phase.RESTORING, Phase.FOLLOWING, Phase.FAILED}),
    Phase.RESTORING: frozenset({Phase.ACTIVE, Phase.CLOSED, Phase.FAILED}),
    Phase.FOLLOWING: frozenset({Phase.RESTORING, Phase.CLOSED, Phase.FAILED}),
    Phase.ACTIVE: frozenset({Phase.CLOSED, Phase.FAILED}),
    Phase.FAILED: frozenset({Phase.CLOSED}),
}


def check_move(current: Phase, following: Phase) -> Phase:
    if following not in _LEGAL[current]:
        raise RuntimeError(f"illegal phase change {current} → {following}")
    return following
