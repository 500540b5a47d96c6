"""What a few samples say about a log."""

from __future__ import annotations

from itertools import pairwise

import pytest

from restore.estimate import (
    BYTES_PER_SECOND,
    RECORDS_PER_SECOND,
    SAMPLE_RECORDS,
    Estimate,
    Sample,
    extrapolate,
    stretches,
)


def test_nothing_to_replay_is_known_exactly() -> None:
    assert stretches(10, 10) == []
    assert extrapolate([]) == Estimate(0, 0, exact=True)


def test_a_short_log_is_one_stretch_and_counted() -> None:
    assert stretches(10, 10 + SAMPLE_RECORDS) == [(10, 10 + SAMPLE_RECORDS)]
    assert extrapolate([Sample(offsets=250, covered=250, records=40, bytes=400)]) == Estimate(40, 400, exact=True)


@pytest.mark.parametrize("end", [11, 261, 999, 2_000, 12_345_678])
def test_stretches_cover_the_log_without_overlap(end: int) -> None:
    found = stretches(10, end)
    assert found[0][0] == 10
    assert found[-1][1] == end
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert all(lower < upper for lower, upper in found)
    assert len(found) <= 8


def test_each_sample_stands_for_its_own_stretch() -> None:
    """A compacted head with a tenth of its records left, and a tail without gaps."""
    sparse = Sample(offsets=100_000, covered=2_500, records=250, bytes=25_000)
    dense = Sample(offsets=100_000, covered=250, records=250, bytes=50_000)
    assert extrapolate([sparse, dense]) == Estimate(10_000 + 100_000, 1_000_000 + 20_000_000, exact=False)


def test_an_empty_stretch_counts_as_empty() -> None:
    assert extrapolate([Sample(100_000, 100_000, 0, 0)]) == Estimate(0, 0, exact=True)


def test_the_slower_limit_decides_the_time() -> None:
    assert Estimate(RECORDS_PER_SECOND * 3, 1, exact=True).seconds == 3
    assert Estimate(1, BYTES_PER_SECOND * 5, exact=True).seconds == 5
