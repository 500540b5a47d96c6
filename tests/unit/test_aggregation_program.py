"""A task's part of ``aggregate`` at an owner in memory: what it reads, stages and tells."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_type

from changelog_state.aggregation.closing import Closing
from changelog_state.aggregation.columns import LATE, ROWS, TIMED, partial_name
from changelog_state.aggregation.functions import adding, collecting, counting, distinct, moments
from changelog_state.aggregation.plan import Plan, plan_of
from changelog_state.aggregation.program import AggregateProgram
from changelog_state.codec.avro import encode_value
from changelog_state.codec.expiring import encode_expiring
from changelog_state.codec.kinds import DATA
from changelog_state.errors import ConfigurationError, ValueEncodingError
from changelog_state.state.ttl import Ttl
from changelog_state.task.spec import EventTime
from tests.support.aggregate_tasks import NOW_MS, Owner

OUTPUT = pa.schema([("k", pa.string()), ("n", pa.int64()), ("total", pa.int64()), ("ticket", pa.binary())])


def plan() -> Plan:
    return plan_of({"n": counting.count(), "total": adding.sum("x")}, {"n": [], "total": [spark.LongType()]})


def batch(*rows: tuple[str, int, int | None]) -> pa.RecordBatch:
    """Key, number of rows, sum."""
    keys, counts, sums = ([row[column] for row in rows] for column in range(3))
    given = [0 if each is None else 1 for each in sums]
    return with_partials(keys, counts, pa.array(sums, pa.int64()), given, counts)


def with_partials(keys: Any, *columns: Any) -> pa.RecordBatch:
    """The last column is the number of rows."""
    *partials, rows = columns
    named = {partial_name(number): column for number, column in enumerate(partials)}
    return pa.record_batch({"k": keys, **named, ROWS: rows})


def run(
    owner: Owner,
    *batches: pa.RecordBatch,
    program: Plan | None = None,
    closing: Closing | None = None,
    **settings: Any,
) -> tuple[Any, Any]:
    shipped = AggregateProgram(program or plan(), "agg", closing=closing)
    return owner.run(shipped, batches, **{"output_schema": OUTPUT, **settings})


def test_batches_of_a_partition_follow_one_another() -> None:
    owner = Owner()
    run(owner, batch(("a", 1, 10), ("c", 2, 20)))
    rows, told = run(owner, batch(("a", 1, 5)), batch(("b", 3, None), ("c", 1, 1)))
    assert rows == [("a", 2, 15), ("b", 3, None), ("c", 3, 21)]
    assert told["counts"]["rows"] == 5
    assert told["records"] == 3
    assert owner.marker is not None
    assert owner.marker.names == ["agg"]
    codec = plan().codec.single
    assert owner.schema(codec.fingerprint) == codec.schema_json.encode()
    assert codec.decode(owner.records()[DATA + b"c\0agg"]) == {"n": 3, "total": 21}


def test_what_stays_as_it_was_is_not_staged() -> None:
    owner = Owner()
    total = plan_of({"total": adding.sum("x")}, {"total": [spark.LongType()]})
    schema = pa.schema([OUTPUT.field("k"), OUTPUT.field("total"), OUTPUT.field("ticket")])
    for x, records in ((1, 1), (0, 0), (1, 1)):
        given = with_partials(["a"], [x], [1], [1])
        rows, told = run(owner, given, program=total, output_schema=schema)
        assert len(rows) == 1
        assert told["records"] == records


def test_what_has_expired_goes_in_the_order_of_the_keys() -> None:
    owner = Owner()
    gone = encode_expiring(encode_value(1), NOW_MS)
    own = encode_expiring(plan().codec.encode([pa.array([7]), pa.array([70])])[0].as_py(), NOW_MS)
    old = [b"a\0old", b"c\0old", b"d\0zzz", b"e\0old"]
    owner.put({**{DATA + key: gone for key in old}, DATA + b"b\0agg": own})
    rows, told = run(owner, batch(("b", 1, 10)), batch(("d", 1, 20)))
    assert rows == [("b", 1, 10), ("d", 1, 20)]
    assert told["counts"]["expired"] == 4
    assert [key for key, value in owner.staged if value is None] == [DATA + key for key in old]
    assert owner.records().keys() == {DATA + b"b\0agg", DATA + b"d\0agg"}


def test_a_time_to_live_begins_anew_with_every_batch() -> None:
    owner = Owner()
    # The last one comes when the one before is over.
    for now_ms, n in ((NOW_MS, 1), (NOW_MS + 999, 2), (NOW_MS + 1_998, 3), (NOW_MS + 2_998, 1)):
        rows, told = run(owner, batch(("a", 1, 0)), batch_time_ms=now_ms, ttl=Ttl(1.0))
        assert rows == [("a", n, 0)]
        assert told["records"] == 1


def test_large_work_goes_in_chunks() -> None:
    owner = Owner()
    keys = [f"{number:06}" for number in range(12_000)]
    ones = [1] * len(keys)
    run(owner, with_partials(keys, ones, ones, ones, ones))
    assert max(owner.chunks) <= 5_000
    assert sum(owner.chunks) == len(keys)


def test_a_record_that_the_changelog_cannot_take_is_an_error() -> None:
    with pytest.raises(ValueEncodingError, match="a value takes 19 bytes, the changelog takes records up to 17"):
        run(Owner(), batch(("a", 1, 0)), largest_record_bytes=17)


def test_an_earlier_schema_is_found_in_the_store() -> None:
    owner = Owner()
    run(owner, batch(("a", 1, 10)))
    changed = plan_of({"n": adding.sum("x"), "total": counting.count()}, {"n": [spark.LongType()], "total": []})
    with pytest.raises(ConfigurationError, match="aggregate 'n' is kept as 'count'"):
        run(owner, with_partials(["a"], [1], [1], [1], [1]), program=changed)


# -- windows of ten milliseconds, which are a column of the key ----------------------------------------

COUNT = plan_of({"n": counting.count()}, {"n": []})
WINDOW = pa.struct([("start", pa.timestamp("us")), ("end", pa.timestamp("us"))])


def windowed(
    owner: Owner,
    *rows: tuple[str, int],
    watermark_ms: int | None = None,
    grace_ms: int = 0,
    emit: Literal["update", "close"] = "close",
    program: Plan = COUNT,
    **settings: Any,
) -> tuple[Any, Any]:
    """Rows of (key, start of the window), sorted; each counts as one row. Gives (key, start, results …)."""
    keys, starts = [row[0] for row in rows], [row[1] for row in rows]
    ones = [1] * len(rows)
    given = {"k": pa.array(keys, pa.string()), "w": pa.array(starts, pa.int64())}
    given |= {
        partial_name(0): ones,
        "at": pa.array(starts, pa.timestamp("ms")),
        TIMED: ones,
        LATE: [0] * len(rows),
        ROWS: ones,
    }
    results = [pa.field(name, pa.int64() if name == "n" else kind) for name, kind in output_types(program)]
    schema = pa.schema([("k", pa.string()), ("window", WINDOW), *results, ("ticket", pa.binary())])
    found, told = run(
        owner,
        *([pa.record_batch(given)] if rows else []),
        program=program,
        closing=Closing(10, grace_ms, emit),
        key_columns=("k", "w"),
        key_types=("string", "long"),
        output_schema=schema,
        watermark_ms=watermark_ms,
        event_time=EventTime("at"),
        **settings,
    )
    for _, window, *_ in found:
        assert window["end"] - window["start"] == timedelta(milliseconds=10)
    since_1970 = ((window["start"] - datetime(1970, 1, 1)) // timedelta(milliseconds=1) for _, window, *_ in found)
    return [(row[0], start, *row[2:]) for row, start in zip(found, since_1970, strict=True)], told


def output_types(program: Plan) -> list[tuple[str, pa.DataType]]:
    return [(field.name, to_arrow_type(field.dataType)) for field in program.output.fields]


def test_a_window_comes_out_once_and_leaves_nothing() -> None:
    owner = Owner()
    assert windowed(owner, ("a", 0), ("a", 10), ("b", 0))[0] == []
    assert windowed(owner, ("a", 0), watermark_ms=9)[0] == []
    rows, told = windowed(owner, ("c", 20), watermark_ms=10)
    assert rows == [("a", 0, 2), ("b", 0, 1)]
    assert told["counts"]["timers"] == 2
    assert windowed(owner, watermark_ms=30)[0] == [("a", 10, 1), ("c", 20, 1)]
    assert (owner.records(), owner.timers()) == ({}, 0)


def test_each_update_comes_out_and_the_end_only_removes() -> None:
    owner = Owner()
    assert windowed(owner, ("a", 0), emit="update")[0] == [("a", 0, 1)]
    assert windowed(owner, ("a", 0), emit="update")[0] == [("a", 0, 2)]
    assert windowed(owner, emit="update", watermark_ms=10)[0] == []
    assert (owner.records(), owner.timers()) == ({}, 0)


def test_a_longer_grace_holds_for_windows_that_are_open() -> None:
    owner = Owner()
    windowed(owner, ("a", 0), ("b", 0))
    assert windowed(owner, ("a", 0), grace_ms=5, watermark_ms=12)[0] == []
    assert windowed(owner, grace_ms=5, watermark_ms=14)[0] == []
    assert windowed(owner, grace_ms=5, watermark_ms=15)[0] == [("a", 0, 2), ("b", 0, 1)]
    assert (owner.records(), owner.timers()) == ({}, 0)


def test_a_shorter_grace_lets_them_come_out_when_the_longer_one_is_over() -> None:
    owner = Owner()
    windowed(owner, ("a", 0), grace_ms=5)
    assert windowed(owner, watermark_ms=12)[0] == []
    assert windowed(owner, watermark_ms=15)[0] == [("a", 0, 1)]


def test_a_window_that_has_outlived_its_time_to_live_does_not_come_out() -> None:
    owner = Owner()
    windowed(owner, ("a", 0), ttl=Ttl(1.0))
    windowed(owner, ("b", 0), ttl=Ttl(1.0), batch_time_ms=NOW_MS + 500)
    rows, _ = windowed(owner, ttl=Ttl(1.0), batch_time_ms=NOW_MS + 1_000, watermark_ms=10)
    assert rows == [("b", 0, 1)]
    assert (owner.records(), owner.timers()) == ({}, 0)


def test_an_added_aggregate_has_seen_nothing_of_a_window_that_closes() -> None:
    owner = Owner()
    windowed(owner, ("a", 0), program=plan_of({"rows": counting.count()}, {"rows": []}))
    added = {
        "rows": counting.count(),
        "n": counting.count(),
        "mean": adding.mean("x"),
        "total": adding.sum("x"),
        "spread": moments.variance("x"),
        "some": collecting.collect("x", 2),
        "top": collecting.top("x", 2, by="x"),
        "visitors": distinct.approx_distinct("x"),
    }
    long = spark.LongType()
    types = {name: [] if name in ("rows", "n") else [long, long] if name == "top" else [long] for name in added}
    rows, _ = windowed(owner, program=plan_of(added, types), watermark_ms=10)
    assert rows == [("a", 0, 1, 0, None, None, None, [], [], 0)]
