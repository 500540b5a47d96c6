"""Every move of a partition's phase: the drawn ones are legal, all others are not."""

from __future__ import annotations

from itertools import product

import pytest

from changelog_state.agent.phases import Phase, check_move

DRAWN = {
    ("CLOSED", "RESTORING"),
    ("CLOSED", "FOLLOWING"),
    ("RESTORING", "ACTIVE"),
    ("FOLLOWING", "RESTORING"),
    ("RESTORING", "CLOSED"),
    ("FOLLOWING", "CLOSED"),
    ("ACTIVE", "CLOSED"),
    ("CLOSED", "FAILED"),
    ("RESTORING", "FAILED"),
    ("FOLLOWING", "FAILED"),
    ("ACTIVE", "FAILED"),
    ("FAILED", "CLOSED"),
}


@pytest.mark.parametrize(("current", "following"), list(product(Phase, Phase)))
def test_move(current: Phase, following: Phase) -> None:
    if (current, following) in DRAWN:
        assert check_move(current, following) is following
    else:
        with pytest.raises(RuntimeError, match=f"{current} → {following}"):
            check_move(current, following)


def test_the_drawing_names_every_phase() -> None:
    from changelog_state.agent import phases

    assert phases.__doc__ is not None
    assert all(phase in phases.__doc__ for phase in Phase)
