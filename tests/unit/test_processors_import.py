"""State that comes from a Spark query's checkpoint, as its processor finds it here: with times to live and timers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.streaming import StatefulProcessor

import changelog_state as cs
from changelog_state.codec.expiring import read_expiring
from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.kinds import DATA
from changelog_state.processors.ddl import parse_schema
from changelog_state.processors.declaring import program_without_spark
from changelog_state.processors.import_call import keep_fields
from changelog_state.processors.imported import TIMER_COLUMN, ImportedState, ImportProgram
from changelog_state.testing import StateTester

START_MS = 1_704_067_200_000
LONG = parse_schema("n long")
STATES = (
    ImportedState("s0", "value", "value", parse_schema("n long, at timestamp"), None, False),
    ImportedState("s1", "list", "list", LONG, None, False),
    ImportedState("s2", "map", "map", LONG, parse_schema("k string, i int"), False),
    ImportedState("s3", "short", "value", LONG, None, True),
    ImportedState("s4", "short list", "list", LONG, None, True),
    ImportedState("s5", "short map", "map", LONG, parse_schema("k string"), True),
)
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def until(n: int, after_ms: int) -> dict[str, Any]:
    return {"value": {"n": n}, "ttlExpirationMs": START_MS + after_ms}


ROWS = [
    {"s0": {"n": 7, "at": NOON}},
    {"s1": [{"n": 3}, {"n": 1}, {"n": None}]},
    {"s2": [{"key": {"k": "b", "i": 2}, "value": {"n": 1}}, {"key": {"k": "a", "i": None}, "value": {"n": 2}}]},
    {"s3": until(5, 1_000)},
    {"s4": [until(1, 1_000), until(2, 5_000), until(3, 2_000)]},
    {"s5": [{"key": {"k": "x"}, "value": until(1, 1_000)}, {"key": {"k": "y"}, "value": until(2, 9_000)}]},
    {TIMER_COLUMN: START_MS + 500},
    {TIMER_COLUMN: START_MS + 60_000},
]


class Looking(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "n long, at timestamp")
        self.list = handle.getListState("list", "n long")
        self.map = handle.getMapState("map", "k string, i int", "n long")
        self.short = handle.getValueState("short", "n long", 10_000)
        self.short_list = handle.getListState("short list", "n long", 10_000)
        self.short_map = handle.getMapState("short map", "k string", "n long", 10_000)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        lasting = self.value.get()[0], list(self.map.iterator()), len(list(self.list.get()))
        short = self.short.get(), [n for (n,) in self.short_list.get()], list(self.short_map.keys())
        yield pd.DataFrame({"what": [str((lasting, short, [at - START_MS for at in self.handle.listTimers()]))]})

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        yield pd.DataFrame({"what": [f"timer {expiredTimerInfo.getExpiryTimeInMs() - START_MS}"]})


def imported() -> StateTester:
    kit = StateTester(ImportProgram(STATES, by_event_time=False), key="k", now=START_MS / 1000)
    columns = [*(state.column for state in STATES), TIMER_COLUMN]
    kit.batch([{"k": "a", **{column: each.get(column) for column in columns}} for each in ROWS])
    return kit


def test_a_processor_finds_it_as_it_was() -> None:
    kit = imported()
    assert kit.last_batch.changes == 1 + 4 + 3 + 1 + 4 + 3 + 2  # records, headers of lists and maps included
    kit.replay()
    kit.restore()
    kit._program, _ = program_without_spark(Looking(), "what string", "ProcessingTime")
    lasting = "((7, [(('a', None), (2,)), (('b', 2), (1,))], 3), "
    assert kit.batch([{"k": "a"}]) == [
        {"what": f"{lasting}((5,), [1, 2, 3], [('x',), ('y',)]), [500, 60000])"},
    ]
    kit.advance(1)
    assert kit.batch([{"k": "a"}]) == [
        {"what": f"{lasting}(None, [2, 3], [('y',)]), [500, 60000])"},
        {"what": "timer 500"},
    ]
    kit.advance(8)
    kit.batch()
    assert set(kit.state()["a"]) == {"value", "list", "map"}
    assert list(kit.timers("a")) == [str(START_MS + 60_000)]


def test_headers_outlive_the_last_entry() -> None:
    prefix = DATA + KeyCodec(("string",)).encode("a")
    records = imported().records()
    for name, after_ms in (("short list", 5_000), ("short map", 9_000)):
        header = read_expiring(records[prefix + name.encode()])
        assert header is not None
        assert header.expires_ms == START_MS + after_ms + 1


def test_what_comes_in_is_what_would_have_been_written_here() -> None:
    class Writing(Looking):
        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            self.value.update((7, NOON))
            self.list.put([(3,), (1,), (None,)])
            self.map.updateValue(("a", None), (2,))
            self.map.updateValue(("b", 2), (1,))
            for after in (500, 60_000):
                self.handle.registerTimer(START_MS + after)
            yield from ()

    theirs = StateTester(
        Writing(), key="k", output_schema="what string", time_mode="ProcessingTime", now=START_MS / 1000
    )
    theirs.batch([{"k": "a"}])
    ours = imported().records()
    assert theirs.records() == {key: data for key, data in ours.items() if b"short" not in key}


def test_a_key_that_is_there_twice_is_no_guess() -> None:
    kit = StateTester(ImportProgram(STATES[2:3], by_event_time=False), key="k")
    entry = {"key": {"k": "b", "i": 2}, "value": {"n": 1}}
    with pytest.raises(cs.InvalidInputError, match="state 'map' has the key .* twice .for key 'a'"):
        kit.batch([{"k": "a", "s2": [entry, entry]}])


def test_each_field_of_an_operators_value_is_a_value() -> None:
    kit = StateTester(lambda key, rows, state: keep_fields(key, rows[0]["value"], state), key="k")
    kit.batch([{"k": "a", "value": {"count": 3, "sum": 1.5}}])
    assert kit.state() == {"a": {"count": 3, "sum": 1.5}}
