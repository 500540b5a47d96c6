"""Sessions of aggregates at an owner in memory, against sessions of plain rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from changelog_state.aggregation.columns import FIRST, LAST, LATE, ROWS, TIMED, partial_name
from changelog_state.aggregation.functions import adding, collecting, counting, distinct, extremes, moments, picking
from changelog_state.aggregation.plan import Plan, plan_of
from changelog_state.aggregation.sessions import SessionProgram, whole_keys
from changelog_state.codec.kinds import DATA
from changelog_state.errors import ValueEncodingError
from changelog_state.state.ttl import Ttl
from changelog_state.task.spec import EventTime
from changelog_state.windows import Session
from tests.support.aggregate_tasks import NOW_MS, Owner

GAP = 10
Emit = Literal["update", "close"]
Row = tuple[str, int]
"""Key and time. Each row's value is its time, too."""
LONG = spark.LongType()
WINDOW = pa.struct([("start", pa.timestamp("us")), ("end", pa.timestamp("us"))])
AGGREGATES = {
    "n": counting.count(),
    "total": adding.sum("x"),
    "mean": adding.mean("x"),
    "spread": moments.variance("x"),
    "largest": extremes.max("x"),
    "earliest": picking.first("x", by="x"),
    "visitors": distinct.approx_distinct("x"),
    "some": collecting.collect("x", 3, by="x"),
}
BY_ARRIVAL = {"begun": picking.first("x"), "ended": picking.last("x")}
BOUNDS = {FIRST: extremes.min("x"), LAST: extremes.max("x")}


def plan(*names: str) -> Plan:
    given = {name: (AGGREGATES | BY_ARRIVAL)[name] for name in names} | BOUNDS
    types = {name: [LONG] * len(aggregate.inputs) for name, aggregate in given.items()}
    return plan_of(given, types, hidden=(FIRST, LAST))


COUNT = plan("n", "total")


def entry(x: int) -> int:
    """Any register, with a rank that is not 0."""
    return (x % 512) << 6 | (x % 7 + 1)


PARTIALS: dict[str, Any] = {
    "n": lambda xs: [len(xs)],
    "total": lambda xs: [sum(xs), len(xs)],
    "mean": lambda xs: [float(sum(xs)), len(xs)],
    "spread": lambda xs: [len(xs), sum(xs) / len(xs), sum((x - sum(xs) / len(xs)) ** 2 for x in xs)],
    "largest": lambda xs: [max(xs)],
    "earliest": lambda xs: [{"by": min(xs), "value": min(xs)}],
    "visitors": lambda xs: [[entry(x) for x in set(xs)]],
    "some": lambda xs: [[{"by": x, "value": x} for x in sorted(xs)[-3:]]],
    "begun": lambda xs: [xs[0]],
    "ended": lambda xs: [xs[-1]],
    FIRST: lambda xs: [min(xs)],
    LAST: lambda xs: [max(xs)],
}


def stretches(times: list[int], gap: int) -> list[list[int]]:
    found: list[list[int]] = []
    for time in sorted(times):
        if found and time - found[-1][-1] < gap:
            found[-1].append(time)
        else:
            found.append([time])
    return found


def arrow(rows: list[Row], program: Plan, gap: int = GAP) -> pa.RecordBatch:
    """What Spark makes of rows."""
    by_key = defaultdict(list)
    for key, time in rows:
        by_key[key].append(time)
    found = [(key, part) for key in sorted(by_key) for part in stretches(by_key[key], gap)]
    columns: dict[str, Any] = {"k": pa.array([key for key, _ in found], pa.string())}
    number = 0
    for name, function in program.functions.items():
        its = [PARTIALS[name](part) for _, part in found]
        for place, kind in enumerate(function.partial_types):
            columns[partial_name(number)] = pa.array([row[place] for row in its], kind)
            number += 1
    counts = [len(part) for _, part in found]
    columns["at"] = pa.array([part[-1] for _, part in found], pa.timestamp("ms"))
    return pa.record_batch({**columns, TIMED: counts, LATE: [0] * len(found), ROWS: counts})


def run(
    owner: Owner,
    *rows: Row,
    watermark_ms: int | None = None,
    emit: Emit = "update",
    program: Plan = COUNT,
    gap: int = GAP,
    grace: int = 0,
    cut: int | None = None,
    **given: Any,
) -> tuple[list[Any], Any]:
    """Gives (key, start, end, results …). ``cut``: rows of Arrow batches."""
    results = [(each.name, to_arrow_type(each.dataType)) for each in program.output]
    schema = pa.schema([("k", pa.string()), ("window", WINDOW), *results, ("ticket", pa.binary())])
    batch = arrow(list(rows), program, gap)
    step = cut or max(1, batch.num_rows)
    batches = [batch.slice(start, step) for start in range(0, batch.num_rows, step)]
    session = Session(timedelta(milliseconds=gap), grace=timedelta(milliseconds=grace))
    found, told = owner.run(
        SessionProgram(program, "agg", session, emit),
        batches,
        key_types=("string", "long"),
        output_schema=schema,
        watermark_ms=watermark_ms,
        event_time=EventTime("at", "judged"),
        **given,
    )
    assert told["counts"]["rows"] == len(rows)
    return [(row[0], *map(milliseconds, row[1].values()), *row[2:]) for row in found], told


def milliseconds(at: datetime) -> int:
    return (at - datetime(1970, 1, 1)) // timedelta(milliseconds=1)


def test_a_session_grows_on_both_sides_and_closes_once() -> None:
    owner = Owner()
    assert run(owner, ("a", 100), ("a", 105), ("b", 7))[0] == [("a", 100, 115, 2, 205), ("b", 7, 17, 1, 7)]
    assert run(owner, ("a", 91), ("a", 114))[0] == [("a", 91, 124, 4, 410)]
    assert run(owner, watermark_ms=123, emit="close")[0] == [("b", 7, 17, 1, 7)]
    assert len(owner.records()) == owner.timers() == 1
    rows, told = run(owner, watermark_ms=124, emit="close")
    assert rows == [("a", 91, 124, 4, 410)]
    assert told["counts"]["timers"] == 1
    assert (owner.records(), owner.timers()) == ({}, 0)


def test_a_row_joins_sessions_into_the_first_of_them() -> None:
    owner = Owner()
    run(owner, ("a", 100), ("a", 115), ("a", 130))
    assert len(owner.records()) == owner.timers() == 3
    assert run(owner, ("a", 108), ("a", 122))[0] == [("a", 100, 140, 5, 575)]
    assert len(owner.records()) == owner.timers() == 1
    assert run(owner, watermark_ms=140, emit="close")[0] == [("a", 100, 140, 5, 575)]


def test_rows_a_gap_apart_are_two_sessions() -> None:
    assert run(Owner(), ("a", 0), ("a", 10))[0] == [("a", 0, 10, 1, 0), ("a", 10, 20, 1, 10)]


def test_a_late_row_counts_only_if_a_session_is_open_for_it() -> None:
    owner = Owner()
    run(owner, ("a", 100))
    rows, told = run(owner, ("a", 92), ("a", 50), ("a", 51), ("b", 92), watermark_ms=105)
    assert rows == [("a", 92, 110, 2, 192)]
    assert told["counts"]["late_rows"] == 3
    assert told["counts"]["max_event_ms"] == 92


def test_a_new_session_may_begin_when_one_of_the_same_time_closes() -> None:
    owner = Owner()
    run(owner, ("a", 100))
    rows, told = run(owner, ("a", 100), watermark_ms=110)
    assert (rows, told["counts"]["late_rows"]) == ([], 1)
    assert (owner.records(), owner.timers()) == ({}, 0)
    run(owner, ("a", 100))
    # The first row alone would be late, and what it was part of is over.
    assert run(owner, ("a", 100), ("a", 105), ("a", 112), watermark_ms=110)[0] == [("a", 100, 122, 3, 317)]
    assert len(owner.records()) == owner.timers() == 1
    assert run(owner, emit="close", watermark_ms=122)[0] == [("a", 100, 122, 3, 317)]


def test_a_session_begins_beside_what_has_another_name() -> None:
    """A function's session, say: when that is over, all is removed that has its number."""
    first, owner = Owner(), Owner()
    run(first, ("a", 100))
    [(record_key, value)] = first.records().items()
    other = record_key.removesuffix(b"agg") + b"zzz"
    owner.put({other: value})
    run(owner, ("a", 100))
    assert run(owner, ("a", 101))[0] == [("a", 100, 111, 2, 201)]
    [mine] = owner.records().keys() - {other}
    assert mine[:-3] != other[:-3]


def test_a_key_with_many_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changelog_state.aggregation.sessions._PAGE", 2)
    owner = Owner()
    run(owner, *(("a", 100 * number) for number in range(5)), ("b", 7))
    assert run(owner, ("a", 401))[0] == [("a", 400, 411, 2, 801)]
    assert len(run(owner, watermark_ms=1_000, emit="close")[0]) == 6


def test_a_longer_grace_holds_for_sessions_that_are_open() -> None:
    owner = Owner()
    run(owner, ("a", 0), ("b", 0))
    assert run(owner, ("a", 5), grace=5, watermark_ms=12, emit="close")[0] == []
    assert run(owner, grace=5, watermark_ms=15, emit="close")[0] == [("b", 0, 10, 1, 0)]
    assert run(owner, grace=5, watermark_ms=20, emit="close")[0] == [("a", 0, 15, 2, 5)]
    assert (owner.records(), owner.timers()) == ({}, 0)


def test_a_session_that_has_outlived_its_time_to_live_is_gone() -> None:
    owner = Owner()
    run(owner, ("a", 0), ("b", 0), ttl=Ttl(1.0))
    run(owner, ("b", 1), ttl=Ttl(1.0), batch_time_ms=NOW_MS + 500)
    rows, told = run(owner, ("a", 1), ttl=Ttl(1.0), batch_time_ms=NOW_MS + 1_000)
    assert rows == [("a", 1, 11, 1, 1)]
    assert told["counts"]["expired"] == 1
    assert run(owner, watermark_ms=20, emit="close", batch_time_ms=NOW_MS + 1_200)[0] == [
        ("a", 1, 11, 1, 1),
        ("b", 0, 11, 2, 1),
    ]
    assert (owner.records(), owner.timers()) == ({}, 0)


def test_a_time_to_live_begins_with_the_latest_row() -> None:
    owner = Owner()
    ttl = Ttl(0.02, clock="event")
    # Both are a session's rows, as the second one joins what is there with what comes.
    run(owner, ("a", 100), ttl=ttl)
    assert run(owner, ("a", 95), ("a", 109), ttl=ttl)[0] == [("a", 95, 119, 3, 304)]
    assert run(owner, ("a", 112), watermark_ms=118, ttl=ttl)[0] == [("a", 95, 122, 4, 416)]


def test_an_added_aggregate_has_seen_nothing_of_sessions_that_join() -> None:
    for first, last in ((100, 115), (115, 100)):  # whatever the order in which they began
        owner = Owner()
        run(owner, ("a", first), program=plan("total"))
        run(owner, ("a", last), program=plan("total"))
        rows, _ = run(owner, ("a", 107), program=plan(*AGGREGATES, "begun", "ended"))
        assert rows == [("a", 100, 125, 1, 322, 107.0, None, 107, 107, 1, [107], 107, 107)]


def test_values_stay_in_order_when_sessions_join() -> None:
    owner, program = Owner(), plan("begun", "ended", "total")
    run(owner, ("a", 100), ("a", 115), program=program)
    assert run(owner, ("a", 107), program=program)[0] == [("a", 100, 125, 100, 107, 322)]


def test_sums_of_nothing_make_nothing() -> None:
    owner = Owner()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PARTIALS, "total", lambda xs: [None, 0])
        run(owner, ("a", 100), ("a", 115))
        assert run(owner, ("a", 107))[0] == [("a", 100, 125, 3, None)]


def test_a_sum_that_goes_beyond_its_type_names_the_key() -> None:
    owner = Owner()
    huge = {**PARTIALS, "total": lambda xs: [(1 << 62) * len(xs), len(xs)]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PARTIALS, "total", huge["total"])
        run(owner, ("a", 0), ("b", 100), ("b", 115))
        with pytest.raises(ValueEncodingError, match="sum 'total' of key 'b' goes beyond the range of bigint"):
            run(owner, ("a", 50), ("b", 107))


def test_sessions_of_two_names_do_not_meet() -> None:
    owner = Owner()
    run(owner, ("a", 0))
    [(record_key, value)] = owner.records().items()
    owner.put({DATA + record_key.removeprefix(DATA).removesuffix(b"agg") + b"other": value})
    assert run(owner, ("a", 5))[0] == [("a", 0, 15, 2, 5)]
    run(owner, watermark_ms=15)
    assert [each[-5:] for each in owner.records()] == [b"other"]


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 100])
def test_no_key_is_in_two_batches(cut: int) -> None:
    batch = pa.record_batch({"k": list("aabcccccdd"), "j": [1, 2, 1, 1, 1, 1, 1, 1, 1, 1], "x": list(range(10))})
    found = list(whole_keys([batch.slice(start, cut) for start in range(0, 10, cut)], ["k", "j"]))
    assert pa.Table.from_batches(found).to_pydict() == batch.to_pydict()
    keys = [{(row["k"], row["j"]) for row in each.to_pylist()} for each in found]
    assert sum(map(len, keys)) == len(set.union(*keys)) == 5


@dataclass
class Model:
    """Sessions of plain rows."""

    emit: Emit
    open: dict[str, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    late: int = 0

    def batch(self, rows: list[Row], watermark_ms: int | None) -> list[Any]:
        def is_over(times: list[int]) -> bool:
            return watermark_ms is not None and max(times) + GAP <= watermark_ms

        updated, closed = [], []
        for key in sorted({*self.open, *(key for key, _ in rows)}):
            new = [time for its_key, time in rows if its_key == key]
            over = [times for times in self.open[key] if is_over(times)]
            goes_on = [times for times in self.open[key] if not is_over(times)]
            before = [time for times in goes_on for time in times]
            kept = []
            for part in stretches([*before, *new], GAP):
                if not set(part) & set(before) and is_over(part):
                    self.late += len(part)
                    continue
                kept.append(part)
                if part not in map(sorted, goes_on):
                    updated.append(self.result(key, part))
            self.open[key] = kept
            closed += [self.result(key, times) for times in over]
        return sorted(closed if self.emit == "close" else updated)

    @staticmethod
    def result(key: str, times: list[int]) -> tuple[Any, ...]:
        mean = sum(times) / len(times)
        spread = sum((time - mean) ** 2 for time in times) / (len(times) - 1) if len(times) > 1 else None
        newest = sorted(times)[-3:]
        numbers = (len(times), sum(times), mean, None if spread is None else pytest.approx(spread))
        visitors = pytest.approx(len(set(times)), rel=0.05)
        return (key, min(times), max(times) + GAP, *numbers, max(times), min(times), visitors, newest)


BATCHES = st.lists(
    st.tuples(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-60, 60)), max_size=12), st.integers(0, 25)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=80, deadline=None)
@given(BATCHES, st.sampled_from(["update", "close"]), st.integers(1, 4))
def test_any_rows_in_any_batches(batches: list[tuple[list[Row], int]], emit: Emit, cut: int) -> None:
    owner, model = Owner(), Model(emit)
    watermark_ms, late = None, 0
    for rows, step in [*batches, ([], 1_000)]:
        expected = model.batch(rows, watermark_ms)
        found, told = run(owner, *rows, watermark_ms=watermark_ms, emit=emit, program=plan(*AGGREGATES), cut=cut)
        assert sorted(found) == expected
        late += told["counts"]["late_rows"]
        watermark_ms = (-60 if watermark_ms is None else watermark_ms) + step
    assert late == model.late
    run(owner, watermark_ms=watermark_ms)
    assert (owner.records(), owner.timers()) == ({}, 0)
