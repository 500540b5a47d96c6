"""Lengths of time as users write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from changelog_state.durations import duration_ms, duration_us
from changelog_state.errors import ConfigurationError


def test_no_length_loses_a_millisecond() -> None:
    for milliseconds in range(1, 20_000):
        words = f"{milliseconds / 1000} seconds"
        given = (milliseconds / 1000, words, timedelta(milliseconds=milliseconds))
        assert {duration_ms(each, "it") for each in given} == {milliseconds}
    assert duration_ms("4.1 minutes", "it") == 246_000


@pytest.mark.parametrize("given", [timedelta(microseconds=400), 0.0004, "0.4 ms"])
def test_what_is_shorter_than_a_millisecond(given: Any) -> None:
    assert duration_us(given, "within") == 400
    assert duration_ms(given, "grace", at_least_ms=0) == 0
    with pytest.raises(ConfigurationError, match="of at least 1 ms"):
        duration_ms(given, "ttl")


@pytest.mark.parametrize("given", ["100000000 days", float("inf"), -1])
def test_bounds_that_no_time_has(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="within is .* up to 30,000,000 days"):
        duration_us(given, "within")
