"""Declared variables, lists, maps and times to live, over batches in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.errors import ConfigurationError, FunctionError, InvalidInputError, InvalidKeyError
from changelog_state.testing import StateTester

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def batches_of(use: Callable[[Any], Any], **options: Any) -> StateTester:
    """``use(state)`` is called for one key, once per batch; what it returns comes out."""

    def function(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
        yield {"found": use(state)}

    return StateTester(function, key="key", **options)


def run(given: StateTester, key: str = "a") -> Any:
    [row] = given.batch([{"key": key}])
    assert given.replay() == [row]
    return row["found"]


def test_a_value_is_an_attribute() -> None:
    def use(state: Any) -> Any:
        found = state.total, state.names, state.nothing
        state.total += 5
        state.names = [*state.names, "x"]
        return found

    given = batches_of(
        use, state=[cs.Value("total", int, default=10), cs.Value("names", default=list), cs.Value("nothing")]
    )
    assert run(given) == (10, [], None)
    assert run(given) == (15, ["x"], None)
    assert given.get_all("a") == {"total": 20, "names": ["x", "x"]}


def test_a_default_is_nobody_s_but_the_key_s() -> None:
    def use(state: Any) -> Any:
        state.names.append("lost")
        return state.names

    assert run(batches_of(use, state=[cs.Value("names", default=[])])) == []


def test_forgetting_a_value() -> None:
    def use(state: Any) -> Any:
        state.total += 1
        if state.total == 2:
            del state.total
        return state.exists("total")

    given = batches_of(use, state=[cs.Value("total", int, default=0)])
    assert [run(given) for _ in range(4)] == [True, False, True, False]


def test_a_list_goes_on_from_batch_to_batch() -> None:
    def use(state: Any) -> Any:
        recent = state.recent
        recent.extend(range(len(recent), len(recent) + 4))
        first = recent.popleft()
        recent[0] *= 10
        recent.trim(5)
        return first, list(recent), recent[-1], recent[1:3], recent[::2], len(recent), bool(recent)

    given = batches_of(use, state=[cs.List("recent", int, prefetch=2)])
    assert run(given) == (0, [10, 2, 3], 3, [2, 3], [10, 3], 3, True)
    assert run(given) == (10, [3, 3, 4, 5, 6], 6, [3, 4], [3, 4, 6], 5, True)
    assert given.get("a", "recent") == [3, 3, 4, 5, 6]


def test_a_list_appends_one_record() -> None:
    given = batches_of(lambda state: state.recent.append("x" * 100), state=[cs.List("recent")])
    for _ in range(3):
        run(given)
    assert given.last_batch is not None
    assert given.last_batch.changes == 2, "the entry, and where the list ends"


def test_a_map_changes_one_record_unread() -> None:
    def use(state: Any) -> Any:
        state.by_sku[f"sku-{state.get('n', 0)}"] = 1
        state.set("n", state.get("n", 0) + 1)

    given = batches_of(use, state=[cs.Map("by_sku", str, int, prefetch=0)])
    for _ in range(3):
        run(given)
    assert given.last_batch is not None
    assert given.last_batch.changes == 2
    assert given.get("a", "by_sku") == {"sku-0": 1, "sku-1": 1, "sku-2": 1}


@pytest.mark.parametrize("prefetch", [0, 3, 100])
def test_a_map_in_order_and_in_ranges(prefetch: int) -> None:
    def use(state: Any) -> Any:
        by = state.by
        if not by:
            by.update({number: -number for number in (5, -3, 700, 12, 0)})
            return None
        by[6] = -6
        by[12] = "changed"
        del by[0]
        return (
            list(by.items(0, 100)),
            list(by.keys(limit=2)),
            list(by),
            by.get(0, "gone"),
            5 in by,
            by.pop(700),
            len(by),
        )

    given = batches_of(use, state=[cs.Map("by", int, prefetch=prefetch)])
    run(given)
    assert run(given) == (
        [(5, -5), (6, -6), (12, "changed")],
        [-3, 5],
        [-3, 5, 6, 12, 700],
        "gone",
        True,
        -700,
        4,
    )
    assert given.get("a", "by") == {-3: 3, 5: -5, 6: -6, 12: "changed"}


def test_many_entries_come_in_pages() -> None:
    def use(state: Any) -> Any:
        if not state.by:
            state.by.update({number: number for number in range(1_300)})
            return None
        state.by.clear()
        state.by["new"] = 1
        return len(state.by)

    given = batches_of(use, state=[cs.Map("by")])
    run(given)
    assert run(given) == 1
    assert given.state() == {"a": {"by": {"new": 1}}}
    assert len(given.records()) == 2


def test_without_declarations() -> None:
    def use(state: Any) -> Any:
        state.list("l").append(1)
        state.map("m")["k"] = 2
        return dict(state.items())

    given = batches_of(use)
    assert run(given) == {"l": [1], "m": {"k": 2}}
    assert run(given) == {"l": [1, 1], "m": {"k": 2}}


def test_more_names_than_a_marker_lists() -> None:
    def use(state: Any) -> Any:
        found = sorted(name for name, _ in state.items())
        for number in range(20):
            state.set(f"n{number:02}", number)
        state.list("l").extend(range(50))
        state.set("z", 1)
        return len(found), len(state.list("l"))

    given = batches_of(use)
    assert [run(given) for _ in range(2)] == [(0, 50), (22, 100)]


@pytest.mark.parametrize(
    ("use", "match"),
    [
        (lambda state: [state.list("x").append(1), state.map("x")], "used as a list and as a map"),
        (lambda state: [state.list("x").append(1), state.set("x", 1)], "cannot be set as a whole"),
        (lambda state: [state.set("x", 1), state.list("x")], "stored as a plain value"),
        (lambda state: state.set("a\0b", 1), "has a NUL character"),
        (lambda state: state.map("m").get(None), "key of an entry is None"),
        (lambda state: state.map("m").get(float("nan")), "not a number"),
        (lambda state: state.list("l").trim(-1), "cannot be trimmed to -1"),
        (lambda state: state.set("x", 1, ttl="soon"), "not a length of time"),
        (lambda state: state.set("x", 1, ttl=cs.Ttl(5, clock="event")), "give event_time="),
    ],
)
def test_what_cannot_be(use: Callable[[Any], Any], match: str) -> None:
    with pytest.raises((InvalidInputError, ConfigurationError), match=match):
        run(batches_of(use))


@pytest.mark.parametrize("kind", ["list", "map"])
def test_what_an_earlier_batch_left_is_not_overwritten_by_a_value(kind: str) -> None:
    """Its entries would stay behind, and come back with the next list of this name."""
    steps: Iterator[Callable[[Any], Any]] = iter(
        [
            lambda state: state.list("x").extend([1, 2]) if kind == "list" else state.map("x").update({0: 1, 1: 2}),
            lambda state: state.set("x", 5),
            lambda state: state.delete("x"),
            lambda state: state.set("x", 5),
        ]
    )

    def function(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        next(steps)(state)

    given = StateTester(function, key="key")
    given.batch([{"key": "a"}])
    with pytest.raises(InvalidInputError, match="cannot be set as a whole"):
        given.batch([{"key": "a"}])
    given.batch([{"key": "a"}])
    assert given.records() == {}
    given.batch([{"key": "a"}])
    assert given.get_all("a") == {"x": 5}


def steps_of(*steps: Callable[[Any], Any], **options: Any) -> StateTester:
    """Each step is a batch of its own, for one key; ``run`` runs the next one."""
    waiting = list(steps)
    given = batches_of(lambda state: current[0](state), **options)
    current = [waiting[0]]

    def batch(rows: Any = (), *, batch: Callable[..., Any] = given.batch) -> Any:
        if rows:
            current[0] = waiting.pop(0)
        return batch(rows)

    given.batch = batch  # type: ignore[method-assign]
    return given


@pytest.mark.parametrize("kind", ["list", "map"])
def test_a_value_set_after_a_list_or_map_of_that_name_was_deleted(kind: str) -> None:
    def fill(state: Any) -> None:
        state.list("x").extend([1, 2]) if kind == "list" else state.map("x").update({0: 1, 1: 2})

    def replace(state: Any) -> Any:
        state.delete("x")
        state.set("x", 5)
        return state.get("x")

    both = lambda state: (fill(state), replace(state))[1]  # noqa: E731
    for steps in ((fill, replace), (both,)):
        given = steps_of(*steps)
        assert [run(given) for _ in steps][-1] == 5
        assert given.get_all("a") == {"x": 5}
        assert len(given.records()) == 1
        given.restore()
        assert given.get_all("a") == {"x": 5}


def test_a_map_is_not_written_under_a_value() -> None:
    def use(state: Any) -> None:
        state.map("x")["a"] = 1
        state.delete("x")
        state.set("x", 5)
        state.map("x")["b"] = 2

    with pytest.raises(InvalidInputError, match="asked for as a map, but is stored as a plain value"):
        run(batches_of(use))


def test_entries_may_be_changed_while_going_over_them() -> None:
    def use(state: Any) -> Any:
        if not state.m:
            state.m.update({"a": 1, "b": 2, "c": 3, "d": 4})
            state.l.extend([1, 2, 3])
            return None
        found = []
        for key, value in state.m.items():
            if key == "a":
                state.m["b"] = 20
                del state.m["c"]
            found.append((key, value))
        for value in state.l:
            state.l[1] = 20
            found.append(value)
        return found

    given = batches_of(use, state=[cs.Map("m", str, int), cs.List("l", int)])
    run(given)
    assert run(given) == [("a", 1), ("b", 20), ("d", 4), 1, 20, 3]


@pytest.mark.parametrize("prefetch", [0, 2, 100])
@pytest.mark.parametrize("ttl", [None, 10])
def test_slices_are_those_of_a_list(prefetch: int, ttl: Any) -> None:
    plain = list(range(7))
    bounds = [None, 0, 2, 5, 7, 9, -1, -3, -9]
    slices = [slice(first, last, step) for first in bounds for last in bounds for step in (None, 1, 2, 5, -1, -2)]
    given = steps_of(
        lambda state: [state.l.append(-1), state.l.extend(plain), state.l.popleft()],
        lambda state: [state.l[each] for each in slices],
        state=[cs.List("l", int, prefetch=prefetch, ttl=ttl)],
    )
    run(given)
    assert run(given) == [plain[each] for each in slices]


def test_what_has_expired_keeps_no_name_taken() -> None:
    given = steps_of(
        lambda state: [state.set("value", 1, ttl=5), state.short.append(1), state.set("other", 1, ttl=5)],
        lambda state: [
            *(state.exists(name) for name in ("value", "short", "other")),
            state.list("value").append(2),
            state.map("other").update({"k": 3}),
        ],
        lambda state: [list(state.list("value")), dict(state.map("other").items())],
        state=[cs.List("short", int, ttl=5)],
    )
    run(given)
    given.advance(5)
    assert run(given)[:3] == [False] * 3
    given.restore()
    assert run(given) == [[2], {"k": 3}]
    assert given.get_all("a") == {"value": [2], "other": {"k": 3}}


def test_an_empty_list_or_map_is_not_there() -> None:
    def use(state: Any) -> Any:
        found = state.exists("m"), state.exists("l"), dict(state.items()), state.get("m", 7)
        state.map("m").update({"a": 1, "b": 2})
        state.list("l").append(1)
        del state.map("m")["a"], state.map("m")["b"]
        state.list("l").popleft()
        return found, state.exists("m"), state.exists("l"), dict(state.items()), state.get("m", 7)

    nothing = False, False, {}, 7
    given = batches_of(use)
    assert run(given) == (nothing, *nothing)
    assert run(given) == (nothing, *nothing)
    assert given.records() == {}


def test_part_of_a_map_is_not_taken_for_all_of_it() -> None:
    given = steps_of(
        lambda state: state.m.update({"a": 1, "b": 2, "c": 3}),
        lambda state: (list(state.m.items(start="b")), list(state.m.items(end="b")), dict(state.m.items())),
        state=[cs.Map("m", str, int, prefetch=0)],
    )
    run(given)
    assert run(given) == ([("b", 2), ("c", 3)], [("a", 1)], {"a": 1, "b": 2, "c": 3})


def test_the_end_of_a_range_is_not_in_it() -> None:
    def use(state: Any) -> Any:
        state.m.update({"a": 1, "b": 2})
        return list(state.m.items(end="b"))

    assert run(batches_of(use, state=[cs.Map("m", str, int)])) == [("a", 1)]


def test_places_beyond_a_list() -> None:
    with pytest.raises(FunctionError, match=r"IndexError.*'l' has 1 entries, asked for number 1"):
        run(batches_of(lambda state: [state.list("l").append(1), state.list("l")[1]]))


def test_keys_of_a_declared_type() -> None:
    with pytest.raises(InvalidKeyError, match="declared with int keys"):
        run(batches_of(lambda state: state.by.get("5"), state=[cs.Map("by", int)]))


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        ([cs.Value("n"), cs.List("n")], "declared twice"),
        ([cs.Value("get")], "state has a method of it"),
        (["n"], "give a list of Value, List and Map"),
    ],
)
def test_declarations_that_cannot_be(variables: list[Any], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        batches_of(lambda state: None, state=variables)


@pytest.mark.parametrize("name", ["", "two words", "_hidden", "a\0", 5])
def test_names_are_those_of_attributes(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="use a name that can be an attribute"):
        cs.Value(name)


# -- times to live -------------------------------------------------------------------------------------------


def test_each_has_the_ttl_that_is_nearest() -> None:
    def use(state: Any) -> Any:
        state.set("of_store", 1)
        state.of_variable = 1
        state.set("of_call", 1, ttl="1 minute 30 seconds")

    given = batches_of(use, ttl=10, state=[cs.Value("of_variable", ttl=timedelta(seconds=20))])
    run(given)
    left = []
    for _ in range(10):
        given.advance(10)
        given.batch()
        left.append(len(given.get_all("a")))
    assert left == [2, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    assert given.records() == {}


@pytest.mark.parametrize(("refresh", "lives"), [("write", False), ("read", True)])
def test_refresh(refresh: Any, lives: bool) -> None:
    def use(state: Any) -> Any:
        if state.n == 0:
            state.n = 1
            state.by["k"] = 1
            state.l.append(1)
        return state.n, state.by.get("k"), list(state.l)

    ttl = cs.Ttl(10, refresh=refresh)
    given = batches_of(use, state=[cs.Value("n", default=0, ttl=ttl), cs.Map("by", ttl=ttl), cs.List("l", ttl=ttl)])
    run(given)
    for _ in range(3):
        given.advance(6)
        found = given.batch([{"key": "a"}])[0]["found"]
        if not lives:
            break
        assert found == (1, 1, [1])
    given.advance(6)
    assert given.get_all("a") == ({"n": 1, "by": {"k": 1}, "l": [1]} if lives else {})


def test_a_read_begins_anew_what_was_set_so_and_nothing_else() -> None:
    """The lifetime that a value was written with counts, not that of its store."""
    given = steps_of(
        lambda state: [
            state.set("read", 1, ttl=cs.Ttl(10, refresh="read")),
            state.set("short", 1, ttl=10),
            state.set("of_store", 1),
        ],
        *[lambda state: [state.get(name) for name in ("read", "short", "of_store")]] * 3,
        ttl=cs.Ttl("1 hour", refresh="read"),
    )
    run(given)
    for expected in ([1, 1, 1], [1, None, 1], [1, None, 1]):
        given.advance(6)
        assert run(given) == expected
        given.restore()
    given.advance("59 minutes")
    assert given.get_all("a") == {"of_store": 1}


def test_deleting_an_entry_prolongs_no_other() -> None:
    given = steps_of(
        lambda state: state.m.update({"a": 1, "b": 2}),
        lambda state: state.m.__delitem__("b"),
        state=[cs.Map("m", str, int, ttl=cs.Ttl(10, refresh="read"))],
    )
    run(given)
    given.advance(6)
    run(given)
    given.advance(6)
    assert given.get_all("a") == {}


def test_what_is_written_anew_in_the_batch_that_would_remove_it_stays() -> None:
    given = batches_of(lambda state: state.set("n", 1, ttl=5))
    run(given)
    given.advance(5)
    run(given)
    assert given.get_all("a") == {"n": 1}
    assert given.last_batch is not None
    assert given.last_batch.expired == 0


def test_late_rows_shorten_no_life() -> None:
    """An hour is an hour from the watermark on at least."""

    def count(key: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
        state.total += len(rows)
        yield {"total": state.total}

    given = StateTester(
        count, key="key", event_time="at", state=[cs.Value("total", int, default=0, ttl=cs.Ttl(3600, clock="event"))]
    )
    for minutes, total in ((0, 1), (120, 2), (30, 3), (121, 4)):
        assert given.batch([{"key": "a", "at": NOW + timedelta(minutes=minutes)}]) == [{"total": total}]


def test_the_rows_may_lose_their_time_in_the_function() -> None:
    def use(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        for row in rows:
            row.pop("at")
            state.seen.append(1)

    ttl = cs.Ttl(10, clock="event")
    given = StateTester(use, key="key", event_time="at", state=[cs.List("seen", int, ttl=ttl)])
    given.batch([{"key": "a", "at": NOW}, {"key": "a", "at": NOW + timedelta(seconds=5)}])
    given.batch([{"key": "b", "at": NOW + timedelta(seconds=14)}])
    assert given.get_all("a") == {"seen": [1, 1]}
    given.batch([{"key": "b", "at": NOW + timedelta(seconds=15)}])
    assert given.get_all("a") == {}


def test_what_expires_goes_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changelog_state.task.partition_task.MOST_EXPIRED", 3)
    given = batches_of(lambda state: state.set("n", 1, ttl=5))
    given.batch([{"key": f"k{number}"} for number in range(8)])
    given.advance(5)
    assert given.state() == {}, "invisible at once"
    gone = []
    for _ in range(4):
        given.batch()
        gone.append(given.last_batch.expired if given.last_batch else None)
        given.restore()
        given.replay()
        assert given.state() == {}, "and never back"
    assert gone == [3, 3, 2, 0]


def test_timers_come_in_bounded_steps_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changelog_state.task.partition_task.MOST_TIMERS", 3)

    def function(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.set_timer(NOW + timedelta(seconds=int(key)))

    def on_timer(key: str, name: str, at: datetime, state: Any) -> Iterator[dict[str, Any]]:
        yield {"key": key}

    given = StateTester(function, key="key", on_timer=on_timer, now=NOW)
    given.batch([{"key": str(number)} for number in (5, 3, 8, 1, 7)])
    given.advance(7)
    first = given.batch()
    assert given.replay() == first == [{"key": "1"}, {"key": "3"}, {"key": "5"}]
    assert given.batch() == [{"key": "7"}]
    assert given.batch() == []
    assert given.timers("8") == {"": NOW + timedelta(seconds=8)}


def test_a_timer_that_sets_itself_does_not_hold_a_batch_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changelog_state.task.partition_task.MOST_TIMERS", 3)

    def function(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.set_timer(NOW + timedelta(seconds=1), "tick")

    def on_timer(key: str, name: str, at: datetime, state: Any) -> Iterator[dict[str, Any]]:
        state.set_timer(at + timedelta(seconds=1), "tick")
        yield {"at": (at - NOW).seconds}

    given = StateTester(function, key="key", on_timer=on_timer, now=NOW)
    given.batch([{"key": "a"}])
    given.advance(7)
    found = []
    for _ in range(4):
        rows = given.batch()
        assert given.replay() == rows
        given.restore()
        found.append([row["at"] for row in rows])
    assert found == [[1, 2, 3], [4, 5, 6], [7], []]


def test_a_timer_set_by_another_does_not_overtake_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changelog_state.task.partition_task.MOST_TIMERS", 1)

    def function(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.set_timer(NOW + timedelta(seconds=1), "a")
        state.set_timer(NOW + timedelta(seconds=5), "b")

    def on_timer(key: str, name: str, at: datetime, state: Any) -> Iterator[dict[str, Any]]:
        if name == "a":
            state.set_timer(NOW + timedelta(seconds=7), "c")
        yield {"name": name}

    given = StateTester(function, key="key", on_timer=on_timer, now=NOW)
    given.batch([{"key": "a"}])
    given.advance(10)
    assert [given.batch() for _ in range(4)] == [[{"name": "a"}], [{"name": "b"}], [{"name": "c"}], []]


def test_timers_of_one_key_in_order_of_time() -> None:
    def function(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        for seconds, name in ((3, "c"), (1, "a"), (2, "b"), (9, "moved"), (2, "deleted")):
            state.set_timer(NOW + timedelta(seconds=seconds), name)

    def on_timer(key: str, name: str, at: datetime, state: Any) -> Iterator[dict[str, Any]]:
        if name == "a":
            state.delete_timer("deleted")
            state.set_timer(at + timedelta(seconds=1.5), "moved")
            state.set_timer(at, "again")  # not later than this one: in the next batch
        yield {"name": name, "at": at}

    given = StateTester(function, key="key", on_timer=on_timer, now=NOW)
    given.batch([{"key": "k"}])
    given.advance(5)
    assert [row["name"] for row in given.batch()] == ["a", "b", "moved", "c"]
    assert given.replay() == given.outputs
    assert [row["name"] for row in given.batch()] == ["again"]
    assert given.timers("k") == {}


def test_a_timer_at_seconds_that_are_milliseconds() -> None:
    def function(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.set_timer(NOW.timestamp() * 1000)

    with pytest.raises(InvalidInputError, match="divide it by 1000"):
        StateTester(function, key="key", on_timer=function).batch([{"key": "k"}])


def test_a_function_that_is_not_deterministic_is_noticed() -> None:
    calls = iter(range(10))
    given = batches_of(lambda state: state.set("n", next(calls)))
    given.batch([{"key": "a"}])
    with pytest.raises(InvalidInputError, match="other changes than the first time"):
        given.replay()


def test_a_life_by_event_time_begins_with_the_rows_as_they_came() -> None:
    def spoil(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        for row in rows:
            row["at"] = row.pop("at") - timedelta(days=1)
        state.set("x", 1, ttl=cs.Ttl(10, clock="event"))

    kit = StateTester(spoil, key="key", event_time="at")
    kit.batch([{"key": "a", "at": datetime(2024, 1, 2, tzinfo=UTC)}])
    assert kit.get("a", "x") == 1


def test_a_read_does_not_shorten_a_life() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)

    def write(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        if key == "a":
            state.v = 1
            state.set_timer(start + timedelta(seconds=1))

    def read(key: str, name: str, at: datetime, state: Any) -> Any:
        assert state.v == 1
        return ()

    ttl = cs.Ttl(30, clock="event", refresh="read")
    kit = StateTester(
        write, key="key", event_time="at", watermark_delay=60, on_timer=read, state=[cs.Value("v", int, ttl=ttl)]
    )
    for key, second in (("a", 60), ("b", 61), ("b", 100)):  # the timer is called when the watermark is at 1 s
        kit.batch([{"key": key, "at": start + timedelta(seconds=second)}])
    assert kit.last_batch.timers == 1
    assert kit.get("a", "v") == 1


def test_a_timer_by_event_time_needs_event_time() -> None:
    def wait(key: str, rows: list[dict[str, Any]], state: Any) -> None:
        state.set_timer(0, clock="event")

    kit = StateTester(wait, key="key", on_timer=wait)
    with pytest.raises(cs.ChangelogStateError, match="timer by event time needs .* event_time="):
        kit.batch([{"key": "a"}])
