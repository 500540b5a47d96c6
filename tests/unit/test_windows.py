"""Windows: who belongs where, when they close, what is late, and that nothing is left of them."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import changelog_state as cs
from changelog_state.errors import ConfigurationError, FunctionError, InvalidInputError
from changelog_state.task.event_time import event_times_ms
from changelog_state.testing import StateTester

START = datetime(2024, 1, 1, tzinfo=UTC)
START_MS = 1704067200000
SECOND = timedelta(seconds=1)


def total(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
    state.set("total", state.get("total", 0) + sum(row["n"] for row in rows))
    yield {"k": key, "from": seconds(window.start), "total": state.get("total")}


def final(key: str, window: cs.Window, state: Any) -> Iterator[dict[str, Any]]:
    yield {"k": key, "final": (seconds(window.start), seconds(window.end)), "total": state.get("total")}


def add(key: str, state: Any, other: Any) -> None:
    state.set("total", state.get("total", 0) + other.get("total", 0))


def seconds(time: datetime) -> float:
    return (time - START) / SECOND


def at(*events: tuple[float, int], key: str = "a") -> list[dict[str, Any]]:
    return [{"k": key, "at": START + time * SECOND, "n": n} for time, n in events]


def kit_of(window: Any, **settings: Any) -> StateTester:
    given = {"key": "k", "event_time": "at", "on_close": final, **settings}
    return StateTester.apply_windows(given.pop("func", total), window=window, **given)


def updates(rows: list[dict[str, Any]]) -> list[tuple[float, int]]:
    return [(row["from"], row["total"]) for row in rows if "from" in row]


def finals(rows: list[dict[str, Any]]) -> list[tuple[tuple[float, float], int]]:
    return [(row["final"], row["total"]) for row in rows if "final" in row]


# -- tumbling and hopping ------------------------------------------------------------------------------------


def test_each_window_has_a_state_of_its_own() -> None:
    kit = kit_of(cs.Tumbling(10))
    assert updates(kit.batch(at((0, 1), (9.999, 2), (10, 4), (-0.001, 8)))) == [(-10, 8), (0, 3), (10, 4)]
    assert kit.replay() == kit.outputs
    assert updates(kit.batch([*at((10, 1)), *at((10, 7), key="b")])) == [(10, 5), (10, 7)]
    assert kit.state()["a", START_MS + 10_000] == {"total": 5}
    assert kit.get(("b", START_MS + 10_000), "total") == 7


def test_a_window_closes_when_the_watermark_has_reached_its_end() -> None:
    kit = kit_of(cs.Tumbling("10 seconds"))
    kit.batch(at((3, 1), (9.999, 2)))
    assert kit.batch() == []
    kit.batch(at((10, 4)))
    assert kit.batch() == [{"k": "a", "final": (0, 10), "total": 3}]
    assert kit.replay() == kit.outputs[-1:]
    assert kit.batch() == []
    assert kit.state() == {("a", START_MS + 10_000): {"total": 4}}
    assert kit.last_batch is not None


@pytest.mark.parametrize(("grace", "delay"), [(3, 0), (0, 3), (1, 2)])
def test_grace_and_delay_leave_it_open(grace: int, delay: int) -> None:
    kit = kit_of(cs.Tumbling(10, grace=grace), watermark_delay=delay)
    kit.batch(at((0, 1)))
    kit.batch(at((12.999, 1)))
    assert updates(kit.batch(at((9, 2)))) == [(0, 3)]
    kit.batch(at((13, 1)))
    assert kit.batch(at((9, 5))) == [{"k": "a", "final": (0, 10), "total": 3}]
    assert kit.last_batch is not None
    assert kit.last_batch.late_rows == 1


def test_nothing_is_left_of_a_closed_window() -> None:
    def keep_much(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> None:
        state.set("value", 1)
        state.set("short", 1, ttl=1)
        state.numbers.extend(range(200))
        state.map("map").update({n: n for n in range(700)})

    for on_close in (final, None):
        kit = kit_of(
            cs.Tumbling(10), func=keep_much, on_close=on_close, state=[cs.List("numbers"), cs.Value("value")]
        )
        kit.batch(at((0, 1)))
        assert set(kit.get_all(("a", START_MS))) == {"value", "short", "numbers", "map"}
        kit.advance(5)
        kit.batch(at((20, 1), key="z"))
        kit.batch()
        assert {key for key, _ in kit.state()} == {"z"}
        assert not [record for record in kit.records() if record[1:3] == b"\x03a"]


def test_windows_may_begin_later() -> None:
    kit = kit_of(cs.Tumbling("1 day", offset="6 hours"))
    [(start, _)] = updates(kit.batch(at((5 * 3600, 1))))
    assert start == -18 * 3600


def test_hopping_windows_overlap() -> None:
    kit = kit_of(cs.Hopping(10, every=4), watermark_delay=5)
    assert updates(kit.batch(at((9, 1)))) == [(0, 1), (4, 1), (8, 1)]
    assert updates(kit.batch(at((4, 2)))) == [(-4, 2), (0, 3), (4, 3)]
    kit.batch(at((19, 0)))
    assert finals(kit.batch()) == [((-4, 6), 2), ((0, 10), 3), ((4, 14), 3)]


@pytest.mark.parametrize("window", [cs.Hopping(10, 4), cs.Hopping(7, 7, offset=3), cs.Hopping("0.003 s", "0.002 s")])
def test_windows_that_have_a_time(window: cs.Hopping) -> None:
    for time_ms in range(-30, 30):
        found = list(window.starts(time_ms))
        all_of_them = range(window.offset_ms % window.every_ms - 50 * window.every_ms, 100, window.every_ms)
        assert found == [start for start in all_of_them if start <= time_ms < start + window.size_ms]


def test_a_row_late_for_one_window_counts_in_another() -> None:
    for late in ("drop", "side_output"):
        kit = kit_of(cs.Hopping(10, every=5), late=late)
        kit.batch(at((6, 1)))
        kit.batch(at((10, 1)))
        assert updates(kit.batch(at((7, 3)))) == [(5, 5)]
        assert kit.last_batch is not None
        assert kit.last_batch.late_rows == 1
        window = {"start": START, "end": START + 10 * SECOND}
        assert kit.late == ([{**at((7, 3))[0], "window": window}] if late == "side_output" else [])


def test_an_accepted_late_row_opens_the_window_anew() -> None:
    kit = kit_of(cs.Tumbling(10), late="accept")
    kit.batch(at((0, 1), (10, 1)))
    assert finals(kit.batch(at((1, 5)))) == [((0, 10), 6)], "it was closed, but has not come out yet"
    assert kit.batch(at((2, 7))) == [
        {"k": "a", "from": 0, "total": 7},
        {"k": "a", "final": (0, 10), "total": 7},
    ]
    assert kit.last_batch is not None
    assert kit.last_batch.late_rows == 1
    assert set(kit.state()) == {("a", START_MS + 10_000)}


def test_a_function_for_late_rows() -> None:
    def late(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
        state.set("total", state.get("total", 0) + 100)
        yield {"late": [row["n"] for row in rows], "of": seconds(window.start), "total": state.get("total")}

    kit = kit_of(cs.Tumbling(10), late=late)
    kit.batch(at((0, 1), (10, 1)))
    assert kit.batch(at((1, 5), (12, 2))) == [
        {"k": "a", "from": 10, "total": 3},
        {"late": [5], "of": 0, "total": 101},
        {"k": "a", "final": (0, 10), "total": 101},
    ], "it sees the window's state, if that is still there"
    assert kit.batch(at((2, 7))) == [{"late": [7], "of": 0, "total": 100}]
    assert set(kit.state()) == {("a", START_MS + 10_000)}


def test_a_window_comes_out_once_whatever_expires_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are over may be removed in several steps, some of them after the window has come out."""
    monkeypatch.setattr("changelog_state.task.partition_task.MOST_EXPIRED", 2)

    def fill(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> None:
        state.l.extend(range(6))

    for window in (cs.Tumbling(10), cs.Hopping(10, every=10)):
        kit = kit_of(window, func=fill, emit="close", state=[cs.List("l", int, ttl=5)])
        kit.batch(at((5, 1)))
        kit.advance(6)
        kit.batch(at((50, 1), key="b"))
        assert [finals(kit.batch()) for _ in range(6)] == [[((0, 10), None)], [], [], [], [], []]


def test_only_closed_windows_give_rows_if_so_wanted() -> None:
    def silent(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> None:
        list(total(key, window, rows, state))

    kit = kit_of(cs.Tumbling(10), emit="close", func=silent)
    assert kit.batch(at((0, 1), (5, 2), (10, 9))) == []
    assert kit.batch() == [{"k": "a", "final": (0, 10), "total": 3}]
    with pytest.raises(FunctionError, match=r"func gave a row, \{'k': 'a'.*emit='close'"):
        kit_of(cs.Tumbling(10), emit="close").batch(at((0, 1)))


def test_a_window_without_state_is_closed_too() -> None:
    kit = kit_of(cs.Tumbling(10), func=lambda *_: None)
    for _ in range(2):
        kit.batch(at((0, 1)))
    assert kit.records().keys() == {b"t\x03a\0\x05" + (START_MS + (1 << 63)).to_bytes(8, "big") + b"close"}
    kit.batch(at((10, 1)))
    assert finals(kit.batch()) == [((0, 10), None)]


def test_without_state_and_on_close_nothing_is_kept() -> None:
    kit = kit_of(cs.Tumbling(10), func=lambda *_: [{"x": 1}], on_close=None)
    assert kit.batch(at((0, 1))) == [{"x": 1}]
    assert kit.records() == {}


def test_a_longer_grace_counts_from_the_next_batch_on() -> None:
    kit = kit_of(cs.Tumbling(10))
    kit.batch(at((0, 1)))
    longer = kit_of(cs.Tumbling(10, grace=5))
    kit._program = longer._program
    kit.batch(at((12, 1), key="z"))
    assert updates(kit.batch(at((3, 1)))) == [(0, 2)]
    kit.batch(at((15, 1), key="z"))
    assert finals(kit.batch()) == [((0, 10), 2)]
    assert {key for key, _ in kit.state()} == {"z"}


@pytest.mark.parametrize("kind", [cs.Tumbling, cs.Sliding])
def test_a_late_row_is_in_a_window_that_has_yet_to_come_out(kind: Any) -> None:
    """Its timer is due later, as the grace was longer when it was set."""
    kit = kit_of(kind(10, grace=20), late="accept", emit="close", func=total_only)
    assert kit.batch(at((3, 1))) + kit.batch(at((15, 0), key="z")) == []
    kit._program = dataclasses.replace(kit._program, kind=kind(10))
    rows = kit.batch(at((3, 2))) + kit.batch(at((100, 0), key="z")) + kit.batch()
    assert [row["total"] for row in rows if row["k"] == "a"] == [3]


def test_rows_are_in_windows_whose_timers_have_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one of two that a late row belongs to waits, as there are more timers than a batch takes."""
    monkeypatch.setattr("changelog_state.task.partition_task.MOST_TIMERS", 1)
    kit = kit_of(cs.Sliding(10), late="accept", emit="close", func=total_only, watermark_delay=50)
    kit.batch([*at((5, 1)), *at((10, 1), key="b")])
    kit.batch(at((1000, 0), key="z"))
    rows = [*kit.batch(at((8, 2), key="b")), *(row for _ in range(5) for row in kit.batch())]
    assert sorted((row["final"], row["total"]) for row in rows if row["k"] == "b") == [((-2, 8), 2), ((0, 10), 3)]


def total_only(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> None:
    state.set("total", state.get("total", 0) + sum(row["n"] for row in rows))


def test_functions_may_change_their_rows() -> None:
    def spoil(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
        for row in rows:
            row["n"] += 1
            yield {"n": row["n"], "columns": sorted(row)}

    rows = kit_of(cs.Hopping(10, every=5), func=spoil).batch(at((0, 1)))
    assert rows == [{"n": 2, "columns": ["at", "k", "n"]}] * 2


@pytest.mark.parametrize("window", [cs.Hopping(10, every=5), cs.Sliding(10)])
def test_functions_may_change_what_is_in_a_column(window: Any) -> None:
    def spoil(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
        for row in rows:
            row["tags"].append("seen")
            row["inner"]["tags"].clear()
            yield {"tags": row["tags"], "left": row["inner"]["tags"]}

    kit = kit_of(window, func=spoil, on_close=None)
    for second in range(4):
        [row] = at((second, 1))
        rows = kit.batch([{**row, "tags": ["new"], "inner": {"tags": ["new"]}}])
        assert all(each == {"tags": ["new", "seen"], "left": []} for each in rows)


def test_values_expire_in_windows_too() -> None:
    kit = kit_of(cs.Tumbling(100), ttl=10)
    kit.batch(at((0, 1)))
    kit.advance(10)
    assert kit.state() == {}
    kit.batch(at((0, 1), key="b"))
    assert len(kit.records()) == 3, "one value and two timers"
    assert updates(kit.batch(at((1, 5)))) == [(0, 5)]


def test_declared_variables_and_keys_of_several_columns() -> None:
    def count(key: tuple[str, int], window: cs.Window, rows: list[Any], state: Any) -> Iterator[dict[str, Any]]:
        state.n += len(rows)
        state.seen.extend(row["n"] for row in rows)
        yield {"key": key, "n": state.n, "seen": list(state.seen)}

    kit = kit_of(
        cs.Tumbling(10), func=count, on_close=None, key=["k", "n"], state=[cs.Value("n", default=0), cs.List("seen")]
    )
    kit.batch(at((0, 1), (1, 2), (2, 1)))
    assert kit.batch(at((3, 1))) == [{"key": ("a", 1), "n": 3, "seen": [1, 1, 1]}]
    assert kit.get_all(("a", 2, START_MS)) == {"n": 1, "seen": [2]}


def test_many_keys_and_windows_in_many_arrow_batches() -> None:
    keys = [f"k{number:04}" for number in range(1500)]
    kit = kit_of(cs.Tumbling(10))
    kit.batch([row for key in keys for row in at((0, 1), (10, 2), key=key)])
    kit.batch(at((100, 1), key="z"))
    kit.batch(at((101, 0), key=keys[700]))
    assert [row["k"] for row in kit.outputs if "final" in row] == keys * 2
    assert {key for key, _ in kit.state()} == {"z", keys[700]}


# -- sessions ------------------------------------------------------------------------------------------------


def session(gap: float = 10, **settings: Any) -> cs.Session:
    return cs.Session(gap, merge=add, **settings)


def test_a_session_goes_on_while_rows_are_near() -> None:
    kit = kit_of(session())
    assert updates(kit.batch(at((0, 1), (9.999, 2), (30, 4)))) == [(0, 3), (30, 4)]
    assert kit.batch(at((40, 8), (49.9, 16))) == [
        {"k": "a", "from": 40, "total": 24},
        {"k": "a", "final": (0, 19.999), "total": 3},
    ], "at a distance of a gap begins another one"
    assert finals(kit.batch()) == [((30, 40), 4)]
    assert kit.state() == {
        ("a", START_MS + 40_000): {"window": {"start": START_MS + 40_000, "end": START_MS + 59_900}, "total": 24}
    }


def test_a_row_that_joins_two_sessions() -> None:
    kit = kit_of(session(), watermark_delay=100)
    kit.batch(at((0, 1), (18, 2), (50, 4)))
    assert updates(kit.batch(at((9, 8)))) == [(0, 11)]
    assert [key for _, key in kit.state()] == [START_MS, START_MS + 50_000]
    kit.batch(at((128, 0), key="z"))
    assert finals(kit.batch()) == [((0, 28), 11)]
    kit.batch(at((160, 0), key="z"))
    assert finals(kit.batch()) == [((50, 60), 4)]
    assert kit.timers(("a", START_MS + 18_000)) == {}
    assert {key for key, _ in kit.state()} == {"z"}


def test_merging_takes_lists_and_maps_along() -> None:
    def keep(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
        state.all.extend(row["n"] for row in rows)
        for row in rows:
            state.map("by")[row["n"]] = len(rows)
        yield {"all": list(state.all), "by": dict(state.map("by").items())}

    def merge(key: str, state: Any, other: Any) -> None:
        state.all.extend(other.all)
        state.map("by").update(other.map("by").items())

    kit = kit_of(
        cs.Session(10, merge), func=keep, on_close=None, watermark_delay=100, state=[cs.List("all", prefetch=2)]
    )
    kit.batch(at((0, 1), (0, 2), (0, 3)))
    kit.batch(at((18, 4), (18, 5)))
    assert kit.batch(at((9, 6))) == [{"all": [1, 2, 3, 4, 5, 6], "by": {1: 3, 2: 3, 3: 3, 4: 2, 5: 2, 6: 1}}]
    assert len(kit.state()) == 1
    assert kit.replay() == kit.outputs[-1:]


def test_a_session_may_grow_to_the_left() -> None:
    kit = kit_of(session(), watermark_delay=100)
    kit.batch(at((9, 1)))
    assert updates(kit.batch(at((0, 2), (-9, 4)))) == [(-9, 7)]
    assert kit.get_all(("a", START_MS + 9_000)) == {
        "window": {"start": START_MS - 9_000, "end": START_MS + 19_000},
        "total": 7,
    }


def test_rows_late_for_sessions() -> None:
    kit = kit_of(session(), late="side_output")
    kit.batch(at((0, 1), (100, 1)))
    assert finals(kit.batch(at((5, 7), (80, 3)))) == [((0, 10), 1)], "one that is closed takes no rows any more"
    assert kit.last_batch is not None
    assert kit.last_batch.late_rows == 2
    windows = [{"start": START + n * SECOND, "end": START + (n + 10) * SECOND} for n in (5, 80)]
    assert [row["window"] for row in kit.late] == windows
    assert updates(kit.batch(at((91, 9), (85, 2)))) == [(85, 12)], "row 85 is in a session that is open"
    assert [row["at"] for row in kit.late] == [START + n * SECOND for n in (5, 80)]


def test_late_rows_that_are_accepted_into_sessions() -> None:
    kit = kit_of(session(), late="accept")
    kit.batch(at((0, 1), (100, 1)))
    assert kit.batch(at((12, 2), (5, 4))) == [
        {"k": "a", "from": 0, "total": 7},
        {"k": "a", "final": (0, 22), "total": 7},
    ], "it was over, but is still there"
    assert kit.batch(at((0, 8))) == [
        {"k": "a", "from": 0, "total": 8},
        {"k": "a", "final": (0, 10), "total": 8},
    ]
    assert [key for _, key in kit.state()] == [START_MS + 100_000]


def test_a_function_for_late_rows_of_sessions() -> None:
    def late(key: str, window: cs.Window, rows: list[Any], state: Any) -> Iterator[dict[str, Any]]:
        assert dict(state.items()) == {}
        state.set("total", 1)
        yield {"late": [row["n"] for row in rows]}

    kit = kit_of(session(), late=late)
    kit.batch(at((0, 1), (100, 1)))
    assert kit.batch(at((0, 7))) == [{"late": [7]}, {"k": "a", "final": (0, 10), "total": 1}]
    assert kit.batch(at((0, 8))) == [{"late": [8]}]
    assert [key for _, key in kit.state()] == [START_MS + 100_000]


def test_two_sessions_that_began_at_one_time() -> None:
    """The first is about to be closed and takes no rows; the second is open, as it has later ones."""
    kit = kit_of(session())
    kit.batch(at((0, 1)))
    kit.batch(at((10, 0), key="z"))
    assert kit.batch(at((0, 2), (5, 4))) == [
        {"k": "a", "from": 0, "total": 6},
        {"k": "a", "final": (0, 10), "total": 1},
    ]
    kit.batch(at((15, 0), key="z"))
    assert finals(kit.batch()) == [((0, 15), 6)]


def test_sessions_need_to_know_how_to_merge() -> None:
    with pytest.raises(ConfigurationError, match=r"say with Session\(merge=\)"):
        kit_of(cs.Session(10))


# -- sliding -------------------------------------------------------------------------------------------------


def test_a_window_per_event_back_from_its_time() -> None:
    kit = kit_of(cs.Sliding(10), watermark_delay=100)
    assert updates(kit.batch(at((0, 1), (10, 2), (5, 4)))) == [(-10, 1), (-5, 5), (0, 6)], "0 is not in (0, 10]"
    assert updates(kit.batch(at((14.999, 8)))) == [(4.999, 14)]
    assert updates(kit.batch(at((6, 16)))) == [(-4, 21), (0, 22), (4.999, 30)], "later windows have it, too"
    assert kit.replay() == kit.outputs[-3:]
    assert kit.get_all(("a", START_MS))["total"] == 22


def test_events_of_one_moment_share_a_window() -> None:
    kit = kit_of(cs.Sliding(10), watermark_delay=100)
    assert updates(kit.batch(at((1, 1), (1, 2)))) == [(-9, 3)]
    assert updates(kit.batch(at((1, 4)))) == [(-9, 7)]
    assert len(kit.get(("a", START_MS - 9_000), "rows")) == 3


def test_sliding_windows_close_once_and_rows_stay_as_long_as_they_may_count() -> None:
    kit = kit_of(cs.Sliding(10, grace=2))
    kit.batch(at((0, 1)))
    kit.batch(at((2, 2)))
    assert finals(kit.batch()) == [], "a row at 0 is not late for it at a watermark of 2"
    kit.batch(at((2.001, 4)))
    assert kit.batch() == [{"k": "a", "final": (-10, 0), "total": 1}]
    assert updates(kit.batch(at((9.999, 8)))) == [(-0.001, 15)], "the row at 0 is in it, its own window is closed"
    kit.batch(at((12, 0), key="z"))
    kit.batch()
    assert not [key for key in kit.state() if key == ("a", START_MS - 10_000)]
    kit.batch(at((50, 0), key="z"))
    kit.batch()
    assert {key for key, _ in kit.state()} == {"z"}
    assert {record[2:3] for record in kit.records()} == {b"z"}


def test_a_row_late_for_its_own_window_counts_in_later_ones() -> None:
    kit = kit_of(cs.Sliding(10), late="side_output")
    kit.batch(at((0, 1), (5, 2)))
    assert kit.batch(at((3, 4))) == [
        {"k": "a", "from": -5, "total": 7},
        {"k": "a", "final": (-10, 0), "total": 1},
    ]
    assert [(row["n"], row["window"]["end"]) for row in kit.late] == [(4, START + 3 * SECOND)]
    assert updates(kit.batch(at((12, 8)))) == [(2, 14)]
    assert kit.late == kit.late[:1]


def test_late_rows_that_are_accepted_into_sliding_windows() -> None:
    kit = kit_of(cs.Sliding(10), late="accept")
    kit.batch(at((0, 1), (50, 2)))
    kit.batch()
    assert kit.batch(at((3, 4))) == [
        {"k": "a", "from": -7, "total": 4},
        {"k": "a", "final": (-7, 3), "total": 4},
    ]
    assert [key for _, key in kit.state()] == [START_MS + 40_000]


def test_late_rows_that_are_accepted_before_their_window_has_come_out() -> None:
    for row, told in ((at((0, 4)), [(-10, 5)]), (at((-3, 4)), [(-13, 4), (-10, 5)])):
        kit = kit_of(cs.Sliding(10), late="accept")
        kit.batch(at((0, 1), (50, 2)))
        found = kit.batch(row)
        assert updates(found) == told
        assert finals(found)[-1] == ((-10, 0), 5)
        assert kit.replay() == found


def test_rows_that_are_kept_for_later_windows_stay_for_their_grace() -> None:
    kit = kit_of(cs.Sliding(10, grace=5))
    kit.batch(at((0, 1)))
    kit.batch(at((12, 2), key="b"))
    kit.batch()
    assert updates(kit.batch(at((8, 4)))) == [(-2, 5)]


def test_a_function_for_late_rows_of_sliding_windows() -> None:
    def late(key: str, window: cs.Window, rows: list[Any], state: Any) -> Iterator[dict[str, Any]]:
        state.set("total", state.get("total", 0) + 1)
        yield {"late": [row["n"] for row in rows], "total": state.get("total")}

    kit = kit_of(cs.Sliding(10), late=late)
    kit.batch(at((0, 1), (5, 2)))
    assert kit.batch(at((0, 4))) == [
        {"k": "a", "from": -5, "total": 7},
        {"late": [4], "total": 2},
        {"k": "a", "final": (-10, 0), "total": 2},
    ]
    assert kit.batch(at((1, 8)))[-1] == {"late": [8], "total": 1}
    assert kit.get_all(("a", START_MS - 9_000)).keys() == {"rows"}


def test_rows_of_sliding_windows_are_the_same_whenever_they_came() -> None:
    seen: list[Any] = []

    def look(key: str, window: cs.Window, rows: list[dict[str, Any]], state: Any) -> None:
        seen.append([dict(row) for row in rows])

    kit = kit_of(cs.Sliding(10), func=look, on_close=None, watermark_delay=100)
    rows = [{"k": "a", "at": START + n * SECOND, "tags": ["x", None], "raw": b"\0", "none": None} for n in range(2)]
    kit.batch(rows[:1])
    kit.batch(rows[1:])
    assert seen == [rows[:1], rows]


# -- all kinds -----------------------------------------------------------------------------------------------


def test_times_are_rounded_down_also_before_1970() -> None:
    micros = [-1_001, -1_000, -1, 0, 999, 1_000]
    for zone in (None, "UTC"):
        batch = pa.record_batch({"at": pa.array(micros, pa.timestamp("us", zone))})
        assert event_times_ms(batch, "at").to_pylist() == [-2, -1, -1, 0, 0, 1]


@pytest.mark.parametrize(("window", "taken"), [(session(), "window"), (cs.Sliding(10), "rows")])
def test_names_that_windows_need_themselves(window: Any, taken: str) -> None:
    def set_it(key: str, window: cs.Window, rows: list[Any], state: Any) -> None:
        state.set(taken, 1)

    with pytest.raises(InvalidInputError, match=f"keep a '{taken}' of their own.*for key 'a'"):
        kit_of(window, func=set_it).batch(at((0, 1)))
    with pytest.raises(InvalidInputError, match=f"keep a '{taken}' of their own"):
        kit_of(window, state=[cs.Value(taken)]).batch(at((0, 1)))


@pytest.mark.parametrize("window", [cs.Tumbling(10), cs.Hopping(10, 5), cs.Sliding(10), session()])
def test_clearing_the_state_does_not_keep_a_window_from_closing(window: Any) -> None:
    def clear(key: str, window: cs.Window, rows: list[Any], state: Any) -> None:
        state.set("total", 1)
        state.clear()

    kit = kit_of(window, func=clear)
    kit.batch(at((0, 1)))
    kit.batch(at((1, 1)))
    kit.batch(at((1000, 1), key="z"))
    kit.batch()
    assert {row["k"] for row in kit.outputs} == {"a"}
    assert {record[2:3] for record in kit.records()} == {b"z"}


@pytest.mark.parametrize("window", [cs.Tumbling(10), cs.Sliding(10), session()])
def test_timers_are_the_windows_own(window: Any) -> None:
    def set_timer(key: str, window: cs.Window, rows: list[Any], state: Any) -> None:
        state.set_timer(START)

    with pytest.raises(ConfigurationError, match="nobody handles timers"):
        kit_of(window, func=set_timer).batch(at((0, 1)))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: cs.Tumbling(0), "size of Tumbling is 0"),
        (lambda: cs.Hopping(10, every=0), "every of Hopping is 0"),
        (lambda: cs.Hopping(10, every=11), "leave out the rows in between"),
        (lambda: cs.Sliding("soon"), "size of Sliding is 'soon'"),
        (lambda: cs.Session(10, grace=-1), "grace of Session is -1"),
        (lambda: cs.Tumbling(10, offset=-1), "offset of Tumbling is -1"),
        (lambda: kit_of("1 hour"), "window is '1 hour'; give a Tumbling"),
        (lambda: kit_of(cs.Tumbling(1), emit="both"), "emit is 'both'"),
        (lambda: kit_of(cs.Tumbling(1), late="ignore"), "late is 'ignore'"),
        (lambda: kit_of(cs.Tumbling(1), emit="close", on_close=None), "say with on_close="),
    ],
)
def test_windows_that_cannot_be(make: Any, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        make()


@pytest.mark.parametrize("wrong", [{"func": None}, {"on_close": 5}])
def test_what_is_no_function(wrong: dict[str, Any]) -> None:
    with pytest.raises(FunctionError, match="give a function"):
        kit_of(cs.Tumbling(10), **wrong)


def test_errors_name_key_and_batch() -> None:
    def fail(key: str, window: cs.Window, rows: list[Any], state: Any) -> None:
        raise ValueError("no")

    with pytest.raises(FunctionError, match="raised ValueError for key 'a' in batch 0: no"):
        kit_of(cs.Tumbling(10), func=fail).batch(at((0, 1)))
    with pytest.raises(FunctionError, match="returned 5, which is not rows; yield dicts .for key 'a'"):
        kit_of(cs.Tumbling(10), func=lambda *_: 5).batch(at((0, 1)))
    with pytest.raises(FunctionError, match="raised TypeError for key 'a'.*is not iterable"):
        kit_of(cs.Tumbling(10), func=lambda *_: list(None)).batch(at((0, 1)))  # type: ignore[call-overload]


def test_kinds_are_values() -> None:
    for kind in (cs.Tumbling("1 hour"), cs.Hopping(10, 5), cs.Sliding(1), cs.Session(10, add)):
        assert pickle.loads(pickle.dumps(kind)) == kind
    window = cs.Tumbling("1 hour").window(START_MS)
    assert (window.start, window.end) == (START, START + timedelta(hours=1))


@pytest.mark.parametrize("window", [cs.Tumbling(10), cs.Sliding(10), session()])
def test_values_of_earlier_generations_are_written_anew_in_windows_too(window: Any) -> None:
    def count(key: str, window: cs.Window, rows: list[Any], state: Any) -> None:
        state.n = type(state.n)(len(rows))

    kit = kit_of(window, func=count, on_close=None, state=[cs.Value("n", int, default=0)], migration="eager")
    kit.batch([*at((0, 1), key="a"), *at((0, 1), (0, 1), key="b"), *at((0, 1), key="c")])
    kit.declare([cs.Value("n", str, default="", migrate=lambda old: f"{old}!")])
    kit.batch(at((1, 1), key="b"))
    assert {key: values["n"] for (key, _), values in kit.state().items() if "n" in values}["a"] == "1!"
    assert kit.last_batch is not None
    assert kit.last_batch.rewritten in (2, 3)


@pytest.mark.parametrize("window", [cs.Tumbling(10), cs.Hopping(10, 5), cs.Sliding(10), session()])
def test_windows_beyond_what_a_batch_closes_come_with_the_next_ones(
    window: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("changelog_state.task.partition_task.MOST_TIMERS", 2)
    kit = kit_of(window, watermark_delay=50)
    kit.batch([row for key in "abcde" for row in at((0, 1), (20, 2), key=key)])
    expected = {(row["k"], row["from"], row["total"]) for row in kit.outputs}
    kit.batch(at((1000, 0), key="z"))
    del kit.outputs[:]
    while batch := kit.batch(at((0, 9), key="a")):
        assert kit.replay() == batch
    for _ in range(20):
        kit.batch()
    closed = [(row["k"], row["final"][0], row["total"]) for row in kit.outputs]
    assert len(closed) == len(set(closed)), "each once"
    assert set(closed) == expected
    assert {record[2:3] for record in kit.records()} == {b"z"}
