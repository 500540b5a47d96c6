"""Processors of Spark's on a partition in memory: the order of calls, timers, times to live, what is refused.

That all of this is as in Spark's operator, test_transform_with_state.py compares; what it says was found there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import ArrayType, CharType, StructType, VarcharType

import changelog_state as cs
from changelog_state.processors import program
from changelog_state.testing import StateTester

OUTPUT = "what string"
START_MS = 1_704_067_200_000


class Scripted(StatefulProcessor):
    """What each handler does is given; all of them put out what they are asked to say."""

    def __init__(self, **handlers: Callable[..., Any]) -> None:
        self.handlers = handlers

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.said: list[str] = []
        self.handlers.get("init", declare)(self, handle)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        yield from self.call("rows", key, pd.concat(list(rows)), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        yield from self.call("timer", key, expiredTimerInfo.getExpiryTimeInMs(), timerValues)

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:  # noqa: N802, N803
        list(self.call("initial", key, initialState, timerValues))

    def call(self, handler: str, *arguments: Any) -> Iterator[pd.DataFrame]:
        if handler in self.handlers:
            self.handlers[handler](self, *arguments)
        if self.said:
            said, self.said = self.said, []
            yield pd.DataFrame({"what": said})

    def say(self, *what: Any) -> None:
        self.said.append(" ".join(map(str, what)))


def declare(self: Any, handle: Any) -> None:
    self.value = handle.getValueState("value", "n long")
    self.list = handle.getListState("list", "n long")
    self.map = handle.getMapState("map", "k string", "n long")


def in_mode(mode: str, **given: Any) -> StateTester:
    settings = {name: given.pop(name) for name in ("event_time", "watermark_delay", "initial_state") if name in given}
    return StateTester(
        Scripted(**given),
        key="k",
        output_schema=OUTPUT,
        time_mode=mode,
        now=START_MS / 1000,
        **settings,
    )


def row(key: str = "a", n: int = 1, minute: int = 0) -> dict[str, Any]:
    return {"k": key, "n": n, "at": datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)}


def whats(rows: list[dict[str, Any]]) -> list[str]:
    return [each["what"] for each in rows]


# -- state ------------------------------------------------------------------------------------------------


def test_states_of_a_key_are_its_own_and_stay() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        n = int(frame["n"].sum())
        self.value.update(((self.value.get() or (0,))[0] + n,))
        self.list.appendList([(each,) for each in frame["n"]])
        self.map.updateValue((str(n),), (n,))
        self.say(key[0], self.value.get(), list(self.list.get()), list(self.map.iterator()))

    kit = in_mode("None", rows=rows)
    kit.batch([row("a", 1), row("b", 5), row("a", 2)])
    assert whats(kit.batch([row("b", 7)])) == ["b (12,) [(5,), (7,)] [(('5',), (5,)), (('7',), (7,))]"]
    assert kit.replay() == kit.outputs[2:]
    kit.restore()
    assert kit.state() == {
        "a": {"value": {"n": 3}, "list": [{"n": 1}, {"n": 2}], "map": {"3": {"n": 3}}},
        "b": {"value": {"n": 12}, "list": [{"n": 5}, {"n": 7}], "map": {"5": {"n": 5}, "7": {"n": 7}}},
    }


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"s": ["x", None], "n": [1, 2]}),
        pd.DataFrame({"more": [0.5, 0.5], "n": [1.0, 2.0], "s": ["x", float("nan")]}),
        {"n": [1, 2], "s": ["x", None]},
        np.array([[1, "x"], [2, None]], dtype=object),
        [{"n": 1, "s": "x"}, {"n": 2, "s": None}],
        [{"n": 1, "s": "x", "more": 0.5}, {"n": 2}],
    ],
)
def test_lists_take_what_a_frame_can_be_made_of(given: Any) -> None:
    def init(self: Any, handle: Any) -> None:
        self.list = handle.getListState("list", "n long, s string")

    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.list.appendValue((0, "y"))
        self.list.put(given)
        self.list.appendList(given)

    kit = in_mode("None", init=init, rows=rows)
    kit.batch([row()])
    assert kit.get("a", "list") == [{"n": 1, "s": "x"}, {"n": 2, "s": None}] * 2


@pytest.mark.parametrize(
    "given", [pd.DataFrame({"n": [1, 2]}), {"n": (1, 2)}, np.array([[1], [2]]), np.array([1, 2]), pd.Series([1, 2])]
)
def test_lists_of_one_column_take_columns(given: Any) -> None:
    kit = in_mode("None", rows=lambda self, *_: (self.list.put(given), self.list.appendList(given)))
    kit.batch([row()])
    assert kit.get("a", "list") == [{"n": 1}, {"n": 2}] * 2


def test_nan_in_a_list_is_null_as_in_a_frame() -> None:
    nan = float("nan")

    def init(self: Any, handle: Any) -> None:
        self.list = handle.getListState("list", "s string, b boolean, d decimal(5,2), x double")
        self.single = handle.getListState("single", "x double")

    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.list.put([(nan, np.float32("nan"), nan, nan), ["a", True, Decimal(1), 0.5]])
        self.list.appendList([{"s": nan, "b": nan, "d": nan, "x": nan}])
        self.single.put([nan, (nan,)])
        self.single.appendValue((nan,))

    kit = in_mode("None", init=init, rows=rows)
    kit.batch([row()])
    nulls = {"s": None, "b": None, "d": None, "x": None}
    assert kit.get("a", "list") == [nulls, {"s": "a", "b": True, "d": Decimal("1.00"), "x": 0.5}, nulls]
    assert repr(kit.get("a", "single")) == "[{'x': None}, {'x': None}, {'x': nan}]", (
        "appendValue keeps it, as in Spark"
    )


def test_a_frame_without_a_column_of_a_list_is_refused() -> None:
    kit = in_mode("None", rows=lambda self, *_: self.list.put(pd.DataFrame({"m": [1]})))
    with pytest.raises(cs.InvalidInputError, match=r"list state 'list' was given columns \['m'\], without \['n'\]"):
        kit.batch([row()])


def test_strings_of_limited_length_are_strings() -> None:
    schema = StructType().add("s", VarcharType(5)).add("c", CharType(2)).add("tags", ArrayType(VarcharType(1)))

    def init(self: Any, handle: Any) -> None:
        self.list = handle.getListState("list", schema)
        self.map = handle.getMapState("map", StructType().add("k", VarcharType(5)), schema)

    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.list.appendValue(("x", "yy", ["z"]))
        self.map.updateValue(("k",), ("x", "yy", ["z"]))
        self.say(*next(self.list.get())[:2], self.map.getValue(("k",))[2])

    kit = in_mode("None", init=init, rows=rows)
    assert whats(kit.batch([row()])) == ["x yy ['z']"]


def test_clearing_leaves_nothing() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        states = (self.value, self.list, self.map)
        self.say(*(state.exists() for state in states))
        if frame["n"][0] == 1:
            self.value.update((1,))
            self.list.put([1, 2])
            self.map.updateValue(("x",), (1,))
        else:
            for state in states:
                state.clear()
        self.say(*(state.exists() for state in states), self.value.get(), self.map.getValue(("x",)))

    kit = in_mode("None", rows=rows)
    assert whats(kit.batch([row(n=1)])) == ["False False False", "True True True (1,) Row(n=1)"]
    assert whats(kit.batch([row(n=2)])) == ["True True True", "False False False None None"]
    assert kit.records() == {}


def test_iterators_show_what_was_there_when_they_began() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.list.put([(1,), (2,)])
        for (n,) in self.list.get():
            self.list.appendValue((n + 10,))
        for name in ("x", "y"):
            self.map.updateValue((name,), (0,))
        for (name,) in self.map.keys():  # noqa: SIM118
            self.map.removeKey((name,))
        self.say(list(self.list.get()), self.map.exists())

    assert whats(in_mode("None", rows=rows).batch([row()])) == ["[(1,), (2,), (11,), (12,)] False"]


@pytest.mark.parametrize("method", ["put", "appendList"])
def test_an_empty_list_is_refused(method: str) -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        getattr(self.list, method)([])

    with pytest.raises(cs.InvalidInputError, match="'list' was given an empty list.*for key 'a' in batch 0"):
        in_mode("None", rows=rows).batch([row()])


def test_a_state_that_is_deleted_is_gone_for_every_key_that_comes() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.value.update((1,))
        self.map.updateValue(("x",), (1,))

    def init(self: Any, handle: Any) -> None:
        handle.deleteIfExists("map")
        handle.deleteIfExists("never declared")
        self.value = handle.getValueState("value", "n long")

    kit = in_mode("None", rows=rows)
    kit.batch([row("a"), row("b")])
    kit.declare(Scripted(init=init))
    kit.batch([row("a")])
    assert kit.state() == {"a": {"value": {"n": 1}}, "b": {"value": {"n": 1}, "map": {"x": {"n": 1}}}}


def test_names_need_not_be_identifiers() -> None:
    def init(self: Any, handle: Any) -> None:
        self.value = handle.getValueState("of the last-hour", "n long")

    kit = in_mode("None", init=init, rows=lambda self, key, frame, times: self.value.update((1,)))
    kit.batch([row()])
    assert kit.get("a", "of the last-hour") == {"n": 1}


def test_schemas_may_grow_and_nothing_else() -> None:
    def with_schema(schema: str) -> Scripted:
        def init(self: Any, handle: Any) -> None:
            self.value = handle.getValueState("value", schema)

        def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
            self.say(self.value.get())

        return Scripted(init=init, rows=rows)

    kit = in_mode("None", rows=lambda self, key, frame, times: self.value.update((5,)))
    kit.batch([row()])
    kit.declare(with_schema("n double, more array<int>"))
    assert whats(kit.batch([row()])) == ["(5.0, None)"]
    with pytest.raises(cs.SchemaEvolutionError, match="value"):
        kit.declare(with_schema("n string"))
    with pytest.raises(cs.SchemaEvolutionError, match="declared as a list, but the store has it as a value"):
        kit.declare(Scripted(init=lambda self, handle: handle.getListState("value", "n long")))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            "d decimal(10,2)",
            "d decimal(10,4)",
            r"decimal\(10,4\) keys, but .* decimal\(10,2\) keys",
        ),
        ("id string", "id string, more string", r"\(string, string\) keys, but the store has it as .* string keys"),
        ("day date", "day int", "int keys, but the store has it as .* date keys"),
        ("p struct<a: int>", "p struct<b: int>", "struct<b:int> keys, but .* struct<a:int> keys"),
    ],
)
def test_what_the_keys_of_a_map_are_stays(before: str, after: str, words: str) -> None:
    """Their bytes do not tell."""

    def with_keys(schema: str) -> Scripted:
        return Scripted(init=lambda self, handle: handle.getMapState("map", schema, "n long"))

    kit = StateTester(with_keys(before), key="k", output_schema=OUTPUT)
    with pytest.raises(cs.SchemaEvolutionError, match=rf"variable map\[keys\] is declared as a map with {words}"):
        kit.declare(with_keys(after))
    kit.declare(with_keys(before))


def test_the_columns_of_a_maps_keys_may_be_renamed() -> None:
    def with_keys(schema: str) -> Scripted:
        def init(self: Any, handle: Any) -> None:
            self.map = handle.getMapState("map", schema, "n long")

        def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
            self.map.updateValue(("x", 1), ((self.map.getValue(("x", 1)) or (0,))[0] + 1,))

        return Scripted(init=init, rows=rows)

    kit = StateTester(with_keys("a string, b int"), key="k", output_schema=OUTPUT)
    kit.batch([row()])
    kit.declare(with_keys("c string not null, d int"))
    kit.batch([row()])
    assert kit.get("a", "map") == {("x", 1): {"n": 2}}


def test_a_state_that_is_called_as_the_keys_of_another() -> None:
    def init(self: Any, handle: Any) -> None:
        handle.getValueState("map[keys]", "n long")
        handle.getMapState("map", "k string", "n long")

    with pytest.raises(cs.ConfigurationError, match=r"'map\[keys\]' is called as the keys of map 'map'"):
        in_mode("None", init=init)


def test_states_that_differ_in_nothing_but_what_their_values_mean() -> None:
    """Avro's fingerprint is the same, and the store keeps one schema for each."""
    schemas = {"price": "v decimal(10,2)", "rate": "v decimal(10,4)", "count": "v long", "at": "v timestamp"}
    start = datetime(2024, 1, 1, tzinfo=UTC)

    def init(self: Any, handle: Any) -> None:
        self.values = {name: handle.getValueState(name, schema) for name, schema in schemas.items()}
        self.days = handle.getListState("days", "v date")
        self.numbers = handle.getListState("numbers", "v int")

    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        for name, value in {"price": Decimal("1.50"), "rate": Decimal("0.1234"), "count": 7, "at": start}.items():
            self.values[name].update((value,))
        self.days.appendValue((start.date(),))
        self.numbers.appendValue((5,))

    kit = in_mode("None", init=init, rows=rows)
    kit.batch([row()])
    assert kit.get_all("a") == {
        "price": {"v": Decimal("1.50")},
        "rate": {"v": Decimal("0.1234")},
        "count": {"v": 7},
        "at": {"v": start},
        "days": [{"v": start.date()}],
        "numbers": [{"v": 5}],
    }


# -- time -------------------------------------------------------------------------------------------------


def test_times_by_mode() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.say(times.getCurrentProcessingTimeInMs(), times.getCurrentWatermarkInMs())

    assert whats(in_mode("None", rows=rows).batch([row()])) == ["-1 -1"]
    assert whats(in_mode("processingTime", rows=rows).batch([row()])) == [f"{START_MS} 0"]
    kit = in_mode("EVENTTIME", rows=rows, event_time="at", watermark_delay="1 minute")
    kit.batch([row(minute=3)])
    assert whats(kit.batch([row(minute=9)])) == [f"{START_MS} {START_MS + 120_000}"]


def test_values_expire_and_writing_begins_anew() -> None:
    def init(self: Any, handle: Any) -> None:
        self.value = handle.getValueState("value", "n long", 5_000)
        self.list = handle.getListState("list", "n long", ttlDurationMs=5_000)
        self.map = handle.getMapState("map", "k string", "n long", 5_000)

    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        n = int(frame["n"][0])
        if n:
            self.value.update((n,))
            self.list.appendValue((n,))
            self.map.updateValue((str(n),), (n,))
        self.say(self.value.get(), list(self.list.get()), list(self.map.keys()))

    kit = in_mode("ProcessingTime", init=init, rows=rows)
    kit.batch([row(n=1)])
    kit.advance(3)
    kit.batch([row(n=2)])
    kit.advance(1.999)
    assert whats(kit.batch([row(n=0)])) == ["(2,) [(1,), (2,)] [('1',), ('2',)]"]
    kit.advance(0.001)
    assert whats(kit.batch([row(n=0)])) == ["(2,) [(2,)] [('2',)]"]
    kit.advance(3)
    assert whats(kit.batch([row(n=0)])) == ["None [] []"]
    kit.advance(0.001)  # what tells that there are a list and a map outlives their entries
    kit.batch()
    assert kit.records() == {}


@pytest.mark.parametrize("mode", ["None", "EventTime"])
def test_a_ttl_needs_processing_time(mode: str) -> None:
    with pytest.raises(cs.ConfigurationError, match="state 'value' has a ttl"):
        in_mode(mode, init=lambda self, handle: handle.getValueState("value", "n long", 1_000), event_time="at")


def test_timers_fire_at_their_time_once_and_in_order() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        now = times.getCurrentProcessingTimeInMs()
        for after in (1, 0, -5, 5_000, -5):
            self.handle.registerTimer(now + after)
        self.handle.registerTimer(now - 7)
        self.handle.deleteTimer(now - 7)
        self.say("rows", [at - START_MS for at in self.handle.listTimers()])

    def timer(self: Any, key: Any, at: int, times: Any) -> None:
        self.say(key, at - START_MS)

    kit = in_mode("ProcessingTime", rows=rows, timer=timer)
    assert whats(kit.batch([row()])) == ["rows [-5, 0, 1, 5000]", "('a',) -5", "('a',) 0"]
    assert sorted(kit.timers("a")) == [str(START_MS + 1), str(START_MS + 5_000)]
    kit.advance(5)
    assert whats(kit.batch()) == ["('a',) 1", "('a',) 5000"]
    assert kit.replay() == kit.outputs[-2:]
    assert kit.last_batch.timers == 2
    assert kit.batch() == []


def test_what_a_timer_does_to_timers_counts_in_the_next_batch() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        for after in (-9, -8):
            self.handle.registerTimer(START_MS + after)

    def timer(self: Any, key: Any, at: int, times: Any) -> None:
        self.say(at - START_MS)
        if at == START_MS - 9:
            self.handle.registerTimer(at)  # deleted when this returns
            self.handle.registerTimer(at - 100)
            self.handle.deleteTimer(START_MS - 8)  # fires all the same: it is due already

    kit = in_mode("ProcessingTime", rows=rows, timer=timer)
    assert whats(kit.batch([row()])) == ["-9", "-8"]
    assert whats(kit.batch()) == ["-109"]
    assert kit.timers("a") == {}


def test_timers_by_event_time_and_rows_that_are_late() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.say("rows", frame["n"].tolist())
        self.handle.registerTimer(START_MS + 60_000)

    def timer(self: Any, key: Any, at: int, times: Any) -> None:
        self.say("timer", times.getCurrentWatermarkInMs() - START_MS)

    kit = in_mode("EventTime", rows=rows, timer=timer, event_time="at", watermark_delay="1 minute")
    assert whats(kit.batch([row(minute=0), row(minute=2)])) == ["rows [1, 1]"]
    # The watermark has reached minute 1, so the timer is due. What is late is judged one batch behind.
    assert whats(kit.batch([row("b", n=3, minute=0)])) == ["timer 60000", "rows [3]", "timer 60000"]
    assert kit.last_batch.late_rows == 0
    found = kit.batch([row(n=1, minute=1), row(n=2, minute=0), row("b", n=3, minute=2)])
    assert whats(found) == ["rows [3]", "timer 60000"]
    assert kit.last_batch.late_rows == 2
    assert kit.replay() == found


def test_rows_of_1970_and_before_are_late_from_the_start() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.say(frame["n"].tolist())

    kit = in_mode("EventTime", rows=rows, event_time="at")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    early = [{"k": "a", "n": number, "at": epoch + timedelta(milliseconds=number)} for number in (-1, 0, 1)]
    for later in (1, 2):
        assert whats(kit.batch([*early, row(n=5, minute=later)])) == ["[1, 5]"]
        assert kit.last_batch.late_rows == 2
    assert whats(kit.batch([*early, row(n=5, minute=3)])) == ["[5]"]


def test_keys_of_bytes_are_given_to_timers_as_spark_gives_them() -> None:
    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.say(key)
        self.handle.registerTimer(START_MS)

    kit = in_mode("ProcessingTime", rows=rows, timer=lambda self, key, *_: self.say(key))
    assert whats(kit.batch([{"k": b"x"}])) == ["(b'x',)", "(bytearray(b'x'),)"]


@pytest.mark.parametrize("keys", [1, 2, 5, 6])
def test_keys_that_are_due_behind_all_rows_are_handled_in_portions(
    monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    monkeypatch.setattr(program, "_KEYS_AT_ONCE", 2)
    kit = in_mode(
        "ProcessingTime",
        rows=lambda self, *_: self.handle.registerTimer(START_MS + 1),
        timer=lambda self, key, *_: self.say(key[0]),
    )
    kit.batch([row(f"k{number}") for number in range(keys)])
    kit.advance(1)
    assert whats(kit.batch([])) == [f"k{number}" for number in range(keys)]
    assert kit.batch() == []


def test_timers_need_a_mode_that_has_time() -> None:
    with pytest.raises(cs.ConfigurationError, match="uses timers, but time_mode is 'None'"):
        in_mode("None", rows=lambda self, key, frame, times: self.handle.registerTimer(5)).batch([row()])
    assert in_mode("None", rows=lambda self, key, frame, times: list(self.handle.listTimers())).batch([row()]) == []


# -- initial state ----------------------------------------------------------------------------------------


def test_initial_state_comes_first_and_once() -> None:
    def initial(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.value.update((len(frame) + (self.value.get() or (0,))[0],))
        self.map.updateValue((str(list(frame.columns)),), (int(frame["start"].sum()),))
        self.handle.registerTimer(START_MS - 1)

    def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.say(key[0], self.value.get(), frame["n"].tolist(), list(frame.columns))

    def timer(self: Any, key: Any, at: int, times: Any) -> None:
        self.say("timer", key[0])

    states = [{"start": 5, "k": "a"}, {"start": 6, "k": "c"}, {"start": 7, "k": "a"}]
    kit = in_mode("ProcessingTime", initial=initial, rows=rows, timer=timer, initial_state=states)
    first = kit.batch([row("b", 1), row("a", 2)])
    assert whats(first) == ["a (2,) [2] ['k', 'n', 'at']", "timer a", "b None [1] ['k', 'n', 'at']", "timer c"]
    assert kit.replay() == first
    assert kit.get("a", "map") == {"['start', 'k']": {"n": 12}}
    assert whats(kit.batch([row("c", 3)])) == ["c (1,) [3] ['k', 'n', 'at']"]


def test_initial_state_does_not_move_the_watermark() -> None:
    kit = in_mode("EventTime", event_time="at", initial_state=[{"k": "z", "n": 1}])
    kit.batch([row(minute=5)])
    assert kit.watermark == row(minute=5)["at"]


def test_initial_state_is_never_late() -> None:
    def initial(self: Any, key: Any, frame: pd.DataFrame, times: Any) -> None:
        self.value.update((int(frame["n"][0]),))

    kit = in_mode("EventTime", initial=initial, event_time="at", initial_state=[{"k": "z", "n": 1}])
    kit.batch([row(minute=5)])
    assert kit.get("z", "value") == {"n": 1}
    assert kit.last_batch.late_rows == 0


# -- what goes wrong --------------------------------------------------------------------------------------


def test_states_are_declared_in_init_only() -> None:
    for late in ("getValueState", "deleteIfExists"):

        def rows(self: Any, key: Any, frame: pd.DataFrame, times: Any, late: str = late) -> None:
            getattr(self.handle, late)(*(("x", "n long") if late == "getValueState" else ("x",)))

        with pytest.raises(cs.FunctionError, match="after init"):
            in_mode("None", rows=rows).batch([row()])


def test_no_key_no_state() -> None:
    class Early(Scripted):
        def init(self, handle: StatefulProcessorHandle) -> None:
            handle.getValueState("value", "n long").update((1,))

    with pytest.raises(cs.FunctionError, match="while no key is handled"):
        StateTester(Early(), key="k", output_schema=OUTPUT)


def test_a_state_is_declared_once() -> None:
    def init(self: Any, handle: Any) -> None:
        handle.getValueState("x", "n long")
        handle.getListState("x", "n long")

    with pytest.raises(cs.ConfigurationError, match="state 'x' is declared twice"):
        in_mode("None", init=init)


@pytest.mark.parametrize(
    ("handlers", "problem"),
    [
        ({"rows": lambda *_: 1 / 0}, "the processor raised ZeroDivisionError for key 'a' in batch 0"),
        ({"rows": lambda self, *_: self.value.update(("x",))}, "n of state 'value' is 'x'.*for key 'a' in batch 0"),
        ({"rows": lambda self, *_: self.said.append(pd.NaT)}, "for key 'a' does not fit output_schema"),
    ],
)
def test_errors_name_the_key(handlers: Any, problem: str) -> None:
    with pytest.raises(cs.ChangelogStateError, match=problem):
        in_mode("None", **handlers).batch([row()])


@pytest.mark.parametrize("returned", [None, 5])
@pytest.mark.parametrize("method", ["handleInputRows", "handleExpiredTimer"])
def test_what_is_no_iterator_of_frames(method: str, returned: Any) -> None:
    class Returning(Scripted):
        pass

    setattr(Returning, method, lambda self, *args, **named: returned)
    rows = {"rows": lambda self, *_: self.handle.registerTimer(START_MS)}
    kit = StateTester(
        Returning(**rows), key="k", output_schema=OUTPUT, time_mode="ProcessingTime", now=START_MS / 1000
    )
    with pytest.raises(cs.FunctionError, match=rf"{method}\(\) .* returned {returned}, .*for key 'a' in batch 0"):
        kit.batch([row()])


def test_what_a_processor_cannot_iterate_is_its_own_mistake() -> None:
    kit = in_mode("None", rows=lambda self, *_: list(self.value.get()))
    with pytest.raises(cs.FunctionError, match="the processor raised TypeError for key 'a'.*not iterable"):
        kit.batch([row()])


def test_a_processor_is_closed_at_the_end_of_a_task() -> None:
    class Closing(Scripted):
        handled = 0

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            self.handled += 1
            yield from ()

        def close(self) -> None:
            if self.handled:
                raise RuntimeError(f"closed after {self.handled} keys")

    kit = StateTester(Closing(), key="k", output_schema=OUTPUT)
    with pytest.raises(cs.FunctionError, match=r"close\(\) raised RuntimeError: closed after 2 keys"):
        kit.batch([row("a"), row("b")])


def test_init_and_close_are_called_once_per_task() -> None:
    class Counting(Scripted):
        def close(self) -> None:
            if not hasattr(self, "value"):
                raise AssertionError("close() without init()")
            raise RuntimeError("closing")

    quiet = Scripted()
    kit = StateTester(quiet, key="k", output_schema=OUTPUT)
    kit.batch([row("a"), row("b")])
    assert not hasattr(quiet, "value")  # tasks have copies of their own
    with pytest.raises(cs.FunctionError, match="RuntimeError: closing"):
        StateTester(Counting(), key="k", output_schema=OUTPUT)


def test_wrong_arguments() -> None:
    with pytest.raises(cs.ConfigurationError, match="time_mode is 'Sometimes'"):
        in_mode("Sometimes")
    with pytest.raises(cs.ConfigurationError, match="give output_schema="):
        StateTester(Scripted(), key="k")
