"""State that comes from a Spark query's checkpoint, as its processor finds it here: with times to live and timers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.streaming import StatefulProcessor

import changelog_state as cs
from changelog_state.calls import Lateness
from changelog_state.codec.expiring import read_expiring
from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.kinds import DATA
from changelog_state.metrics import BatchSummary
from changelog_state.processors.checkpoint import Checkpoint
from changelog_state.processors.ddl import parse_schema
from changelog_state.processors.declaring import program_without_spark
from changelog_state.processors.import_call import ImportCall, ImportSummary, keep_fields
from changelog_state.processors.imported import TIMER_COLUMN, ImportedState, ImportProgram, TakeOverProgram
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


def test_what_deduplication_has_seen() -> None:
    kit = StateTester(lambda key, rows, state: keep_fields(key, rows[0]["value"], state), key="k")
    kit.batch([{"k": "a", "value": {"__dummy__": None}}])
    assert kit.state() == {"a": {"seen": True}}


@pytest.mark.parametrize("value", [NOON, NOON.date(), Decimal("1.5"), {"start": NOON}, [NOON]])
def test_a_field_that_cannot_be_kept_asks_for_a_function(value: Any) -> None:
    kit = StateTester(lambda key, rows, state: keep_fields(key, {"last": value}, state), key="k")
    with pytest.raises(cs.ValueEncodingError, match="field 'last' of the operator's value .*; give func= a function"):
        kit.batch([{"k": "a"}])


def test_a_function_sets_values_and_timers_and_none_is_called() -> None:
    def take_over(key: Any, value: Any, state: cs.State) -> None:
        state.set("n", value["n"])
        state.set_timer(START_MS / 1000, "due")
        state.set_timer(START_MS / 1000 + 60, "later")

    kit = StateTester(TakeOverProgram(take_over, "value"), key="k", now=START_MS / 1000)
    kit.batch([{"k": "a", "value": {"n": 1}}])
    kit.replay()
    kit.restore()
    assert (kit.state(), sorted(kit.timers("a"))) == ({"a": {"n": 1}}, ["due", "later"])


def test_an_error_of_a_function_names_the_key() -> None:
    kit = StateTester(TakeOverProgram(lambda key, value, state: 1 / 0, "value"), key="k")
    with pytest.raises(cs.FunctionError, match="the function raised ZeroDivisionError for key 'a' in batch 0"):
        kit.batch([{"k": "a", "value": {"n": 1}}])


def import_call(**counts: Any) -> ImportCall:
    found = {"counted": {"value": 2}, "timers": 0, "records": None} | counts
    checkpoint = Checkpoint(None, "/checkpoint", 0, "q", 3, 0, 0, "dedupe", {})  # type: ignore[arg-type]
    return ImportCall(
        df=None,  # type: ignore[arg-type]
        batch_id=3,
        key="k",
        schema="",
        program=None,  # type: ignore[arg-type]
        lateness=Lateness(),
        checkpoint=checkpoint,
        **found,
    )


def summary_of(rows: int, changes: int) -> BatchSummary:
    others: dict[str, int] = dict.fromkeys(("late_rows", "timers", "rewritten", "expired", "outputs"), 0)
    return BatchSummary("q", 3, START_MS, None, START_MS, rows=rows, changes=changes, **others)


@pytest.mark.parametrize(("counts", "changes", "rows"), [({}, 9, 2), ({"records": 9}, 9, 7)])
def test_a_summary_tells_what_came_in(counts: Any, changes: int, rows: int) -> None:
    batch = summary_of(rows, changes)
    assert import_call(**counts).summary(batch) == ImportSummary("q", 3, START_MS, {"value": 2}, 0)


@pytest.mark.parametrize(
    ("counts", "problem"),
    [({}, "/checkpoint has 2 records of state, but 1 were"), ({"records": 3}, "has 3 records of state, but 2 were")],
)
def test_a_summary_of_less_is_an_error(counts: Any, problem: str) -> None:
    batch = summary_of(rows=1, changes=2)
    with pytest.raises(cs.InvalidInputError, match=problem):
        import_call(**counts).summary(batch)


class Answers:
    """In place of a Spark session that reads a checkpoint."""

    def __init__(self, operators: list[Any]) -> None:
        self.read = self
        self.operators = operators

    def format(self, name: str) -> Any:
        return SimpleNamespace(load=lambda path: SimpleNamespace(collect=lambda: self.operators))

    def text(self, path: str) -> Any:
        return SimpleNamespace(collect=lambda: [SimpleNamespace(value=line) for line in ("v1", '{"id": "q"}')])


def test_a_query_that_has_not_come_to_an_end_of_a_batch() -> None:
    spark: Any = Answers([SimpleNamespace(operatorId=0, operatorName="dedupe", maxBatchId=-1)])
    with pytest.raises(cs.InvalidInputError, match="query of checkpoint /checkpoint has not committed a batch"):
        Checkpoint.read(spark, "/checkpoint/", 0)
    with pytest.raises(cs.ConfigurationError, match="no stateful operator 1, only {0: 'dedupe'}; give operator_id="):
        Checkpoint.read(spark, "/checkpoint/", 1)
    empty: Any = Answers([])
    with pytest.raises(cs.ConfigurationError, match="/checkpoint has no state: .* directory 'state' was left out"):
        Checkpoint.read(empty, "/checkpoint/", 0)
