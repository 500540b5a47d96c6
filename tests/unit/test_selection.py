"""``--partitions 0-3,7``."""

from __future__ import annotations

import pytest

from changelog_state.cli.selection import parse_partitions
from changelog_state.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("0-3,7", [0, 1, 2, 3, 7]),
        ("7,0-3", [0, 1, 2, 3, 7]),
        ("5", [5]),
        ("2-2", [2]),
        (" 1 , 3 - 4 ", [1, 3, 4]),
        ("1,1,0-2", [0, 1, 2]),
    ],
)
def test_selection(text: str | None, chosen: list[int]) -> None:
    assert parse_partitions(text, 8) == chosen


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "1-", "1..3", "0x1", "1 2"])
def test_what_is_no_selection(text: str) -> None:
    with pytest.raises(ConfigurationError, match="like 0-3,7"):
        parse_partitions(text, 8)


def test_a_partition_that_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match="no partition 8; this store has 0 to 7"):
        parse_partitions("0-8", 8)
    with pytest.raises(ConfigurationError, match="no partition 999999999999"):
        parse_partitions("0-999999999999", 8)


def test_a_range_that_goes_downwards() -> None:
    with pytest.raises(ConfigurationError, match="write 2-5"):
        parse_partitions("5-2", 8)
