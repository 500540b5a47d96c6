"""A function per row with one value as its state: the same however the rows are cut into batches."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import changelog_state as cs
from changelog_state.errors import ConfigurationError, FunctionError
from changelog_state.task.row_map import row_map_program
from changelog_state.testing import StateTester

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def kit_of(function: Any, initial: Any = None, *, late: Any = None, **settings: Any) -> StateTester:
    return StateTester(row_map_program(function, initial, late), key="k", **settings)


def total(key: str, value: dict[str, Any], state: int | None) -> tuple[Any, int]:
    new = (state or 0) + value["n"]
    return {"k": key, "total": new}, new


def test_state_goes_from_row_to_row_and_from_batch_to_batch() -> None:
    kit = kit_of(total)
    assert kit.batch([{"k": "a", "n": 1}, {"k": "b", "n": 5}, {"k": "a", "n": 2}]) == [
        {"k": "a", "total": 1},
        {"k": "a", "total": 3},
        {"k": "b", "total": 5},
    ]
    assert kit.replay() == kit.outputs
    assert kit.batch([{"k": "a", "n": 10}]) == [{"k": "a", "total": 13}]
    assert kit.state() == {"a": {"state": 13}, "b": {"state": 5}}
    assert kit.last_batch is not None
    assert kit.last_batch.changes == 1


def test_rows_come_in_the_order_in_which_they_are_given() -> None:
    kit = kit_of(lambda key, value, state: (None, [*(state or []), value["n"]]))
    kit.batch([{"k": "a", "n": n} for n in (3, 1, 2)])
    assert kit.get("a", "state") == [3, 1, 2]


@pytest.mark.parametrize("initial", [[7], lambda: [7]])
def test_initial_is_everybody_s_own(initial: Any) -> None:
    def collect(key: str, value: dict[str, Any], state: list[int]) -> Any:
        state.append(value["n"])
        return None, state

    kit = kit_of(collect, initial)
    kit.batch([{"k": "a", "n": 1}, {"k": "b", "n": 2}])
    kit.batch([{"k": "c", "n": 3}])
    assert kit.state() == {"a": {"state": [7, 1]}, "b": {"state": [7, 2]}, "c": {"state": [7, 3]}}


def test_none_drops_the_state_and_the_next_row_begins_anew() -> None:
    def until_three(key: str, value: dict[str, Any], state: int) -> Any:
        return {"k": key, "n": state + 1}, None if state == 2 else state + 1

    kit = kit_of(until_three, 0)
    given = [{"k": "a"}] * 4
    assert [row["n"] for row in kit.batch(given)] == [1, 2, 3, 1]
    assert kit.get_all("a") == {"state": 1}
    assert [row["n"] for row in kit.batch(given[:2])] == [2, 3]
    assert kit.state() == {}
    assert kit.records() == {}


def test_outputs_are_none_one_or_several() -> None:
    def repeat(key: str, value: dict[str, Any], state: Any) -> Any:
        return {0: None, 1: {"i": 0}}.get(value["n"], [{"i": i} for i in range(value["n"])]), None

    assert kit_of(repeat).batch([{"k": "a", "n": n} for n in (0, 1, 2)]) == [{"i": 0}, {"i": 0}, {"i": 1}]


def test_what_was_put_out_does_not_change_with_the_state() -> None:
    def history(key: str, value: dict[str, Any], state: list[int]) -> Any:
        state.append(value["n"])
        return {"seen": state}, state

    rows = kit_of(history, list).batch([{"k": "a", "n": 1}, {"k": "a", "n": 2}])
    assert rows == [{"seen": [1]}, {"seen": [1, 2]}]


def test_state_is_what_it_will_be_in_the_next_batch() -> None:
    """A tuple is stored as a list: the next row must not see a tuple because it came in the same batch."""
    kinds = []

    def pair(key: str, value: dict[str, Any], state: Any) -> Any:
        kinds.append(type(state))
        return None, [state, 1] if isinstance(state, int) else [{"x": 1.5}]

    kit_of(pair, 0).batch([{"k": "a"}, {"k": "a"}])
    assert kinds == [int, list]


def test_a_declared_value_gives_default_and_time_to_live() -> None:
    kit = kit_of(total, state=[cs.Value("state", default=100, ttl="10 seconds")])
    assert kit.batch([{"k": "a", "n": 1}, {"k": "a", "n": 1}]) == [{"k": "a", "total": 101}, {"k": "a", "total": 102}]
    kit.advance(9)
    assert kit.batch([{"k": "a", "n": 1}]) == [{"k": "a", "total": 103}]
    kit.advance(10)
    assert kit.batch() == []
    assert kit.records() == {}
    assert kit.batch([{"k": "a", "n": 1}]) == [{"k": "a", "total": 101}]


def test_late_rows_have_a_function_of_the_same_form() -> None:
    kit = kit_of(
        total, 0, late=lambda key, value, state: ({"late": value["n"], "total": state}, state), event_time="at"
    )
    kit.batch([{"k": "a", "n": 1, "at": NOON}])
    early = NOON - timedelta(seconds=1)
    assert kit.batch([{"k": "a", "n": 5, "at": early}, {"k": "a", "n": 2, "at": NOON}]) == [
        {"k": "a", "total": 3},
        {"late": 5, "total": 3},
    ]


@pytest.mark.parametrize("answer", [None, 5, {"k": 1}, (1,), (1, 2, 3), [None, 1]])
def test_a_function_returns_two_things(answer: Any) -> None:
    kit = kit_of(lambda key, value, state: answer)
    with pytest.raises(FunctionError, match=r"return two things, \(output, new_state\).*for key 'a' in batch 0"):
        kit.batch([{"k": "a"}])


def test_an_output_that_is_no_rows() -> None:
    with pytest.raises(FunctionError, match="returned 5, which is not rows; yield dicts .for key 'a'"):
        kit_of(lambda key, value, state: (5, 5)).batch([{"k": "a"}])


@pytest.mark.parametrize("func", [None, "total"])
def test_what_is_no_function(func: Any) -> None:
    service = cs.StateService("a", "s", "nowhere:9092", 1, agents="external")
    with pytest.raises(FunctionError, match="give a function"):
        service.stateful_map(None, 0, func, key="k", schema="k string")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="event_time"):
        service.stateful_map(None, 0, total, key="k", schema="k string", late="drop")  # type: ignore[arg-type]


def fold(key: str, value: dict[str, Any], state: Any) -> Any:
    """Numbers stay numbers, texts collect, and a zero drops everything."""
    n = value["n"]
    if n == 0:
        return {"k": key, "dropped": state}, None
    if isinstance(state, int):
        return None, state + n if n % 3 else [state, n]
    state.append(n)
    return [{"k": key, "seen": list(state)}] * (n % 2 + 1), state


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=40), st.randoms(use_true_random=False))
def test_cutting_into_batches_changes_nothing(rows: list[tuple[str, int]], chance: random.Random) -> None:
    states: dict[str, Any] = {}
    expected: dict[str, list[Any]] = {}
    for key, n in rows:
        state = states.get(key, 1)
        output, state = fold(key, {"n": n}, list(state) if isinstance(state, list) else state)
        states.pop(key, None)
        if state is not None:
            states[key] = list(state) if isinstance(state, list) else state
        expected.setdefault(key, []).extend(output if isinstance(output, list) else [output] if output else [])
    kit, found = kit_of(fold, 1), {}
    left = rows
    while left:
        size = chance.randint(1, len(left))
        for row in kit.batch([{"k": key, "n": n} for key, n in left[:size]]):
            found.setdefault(row["k"], []).append(row)
        left = left[size:]
        chance.choice([kit.replay, kit.restart, kit.restore])()
    assert found == {key: output for key, output in expected.items() if output}
    assert kit.state() == {key: {"state": state} for key, state in sorted(states.items())}
