"""What a function of the user's does wrong: it gives out what is not rows, or it raises, be it the same error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.testing import StateTester

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NOT_ROWS = r"the function returned 5, which is not rows; yield dicts .for key 'a' in batch \d"
ROW = {"k": "a", "items": None, "at": NOON}


def returning(*given: Any) -> int:
    return 5


def iterating(key: str, rows: list[Any], state: Any) -> list[dict[str, Any]]:
    return [{"item": item} for row in rows for item in row["items"]]


def iterating_later(key: str, rows: list[Any], state: Any) -> Iterator[dict[str, Any]]:
    yield from iterating(key, rows, state)


def test_a_function_that_returns_no_rows() -> None:
    with pytest.raises(cs.FunctionError, match=NOT_ROWS):
        StateTester(returning, key="k").batch([ROW])


def test_a_function_for_late_rows_that_returns_none() -> None:
    kit = StateTester(lambda *_: (), key="k", event_time="at", watermark_delay=0, late=returning)
    kit.batch([ROW])
    with pytest.raises(cs.FunctionError, match=NOT_ROWS):
        kit.batch([{**ROW, "at": NOON - timedelta(hours=1)}])


def test_a_timer_that_returns_no_rows() -> None:
    def set_timer(key: str, rows: list[Any], state: Any) -> None:
        state.set_timer(NOON + timedelta(minutes=1))

    kit = StateTester(set_timer, key="k", on_timer=returning, event_time="at", watermark_delay=0)
    kit.batch([ROW])
    kit.batch([{**ROW, "k": "b", "at": NOON + timedelta(hours=1)}])
    with pytest.raises(cs.FunctionError, match=NOT_ROWS):
        kit.batch([])


@pytest.mark.parametrize("function", [iterating, iterating_later])
def test_a_mistake_of_its_own_keeps_its_text(function: Any) -> None:
    own = "raised TypeError for key 'a' in batch 0: 'NoneType' object is not iterable"
    with pytest.raises(cs.FunctionError, match=own):
        StateTester(function, key="k").batch([ROW])
