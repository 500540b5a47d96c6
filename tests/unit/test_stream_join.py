"""Two inputs joined by key and time: equal to a join of everything at once, whatever the order and the batches."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812 (Spark's own custom)

from changelog_state.errors import ConfigurationError, InvalidInputError
from changelog_state.joins import join_of
from changelog_state.task.stored_rows import StoredRows
from changelog_state.task.stream_join import VARIABLES, stream_join_program
from changelog_state.testing import StateTester

START = datetime(2024, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SCHEMA = T.StructType(
    [
        T.StructField("input", T.StringType()),
        T.StructField("k", T.StringType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("id", T.LongType()),
        T.StructField("amount", T.DecimalType(10, 2)),
    ]
)
COLUMNS = (["k", "at", "id"], ["k", "at", "id", "amount"])


def kit_of(how: Any = "inner", within: Any = 10, delay: float = 0, late: Any = "drop") -> StateTester:
    join, _ = join_of(
        SCHEMA,
        ("orders", "payments"),
        COLUMNS,
        key_columns=("k",),
        tag="input",
        event_time="at",
        within=within,
        how=how,
    )
    kit = StateTester(stream_join_program(join), key="k", event_time="at", watermark_delay=delay, late=late)
    kit._variables = VARIABLES
    return kit


def order(at: float, number: int = 0, key: str = "a") -> dict[str, Any]:
    return {"input": "orders", "k": key, "at": START + at * SECOND, "id": number, "amount": None}


def payment(at: float, number: int = 0, key: str = "a") -> dict[str, Any]:
    return {**order(at, number, key), "input": "payments", "amount": Decimal("1.50")}


def ids(rows: list[dict[str, Any]]) -> list[tuple[int | None, int | None]]:
    return [tuple(None if row[each] is None else row[each]["id"] for each in ("orders", "payments")) for row in rows]  # type: ignore[misc]


def test_a_row_without_a_partner_comes_out_by_the_time_of_the_oldest() -> None:
    """The timer that is there already is of a later row."""
    kit = kit_of("outer", (0, 10), delay=60)
    kit.batch([order(50, 1)])
    kit.batch([payment(20, 2)])
    assert ids(kit.batch([order(100, 3, key="b")])) == []
    assert ids(kit.batch()) == [(None, 2)]


def test_a_pair_comes_out_once_whoever_comes_first() -> None:
    kit = kit_of(delay=60)
    assert kit.batch([order(0, 1), payment(20, 2)]) == []
    assert sorted(ids(kit.batch([payment(10, 3), order(10, 4)]))) == [(1, 3), (4, 2), (4, 3)]
    assert ids(kit.batch([payment(0, 5, key="b")])) == []
    assert kit.replay() == []


def test_rows_come_out_as_they_were() -> None:
    kit = kit_of(delay=60)
    kit.batch([order(0, 1)])
    assert kit.batch([payment(0.5, 2)]) == [
        {
            "k": "a",
            "orders": {"at": START, "id": 1},
            "payments": {"at": START + 0.5 * SECOND, "id": 2, "amount": Decimal("1.50")},
        }
    ]
    assert kit.get_all("a") == {
        "left": {(1704067200000000, 0): {"row": {"at": 1704067200000000, "id": 1}}},
        "right": {(1704067200500000, 0): {"row": {"at": 1704067200500000, "id": 2, "amount": "1.50"}}},
    }


def test_who_has_met_a_partner_is_known_where_it_matters() -> None:
    kit = kit_of("left", delay=60)
    kit.batch([order(0, 1), order(50, 2), payment(1, 3)])
    left = kit.get("a", "left")
    assert [entry["matched"] for entry in left.values()] == [True, False]
    kit.batch([payment(50, 4)])
    left = kit.get("a", "left")
    assert [entry["matched"] for entry in left.values()] == [True, True]


def test_bounds_are_included_to_the_microsecond() -> None:
    kit = kit_of(within="10 seconds", delay=60)
    close, beyond = payment(10, 1), payment(10, 2)
    beyond["at"] += timedelta(microseconds=1)
    assert ids(kit.batch([order(0), close, beyond])) == [(0, 1)]


def test_bounds_of_both_sides_may_differ() -> None:
    def matches(at: float, first: str) -> bool:
        kit = kit_of(within=(1, "5 seconds"), delay=60)
        rows = {"order": order(100), "payment": payment(at)}
        kit.batch([rows.pop(first)])
        return bool(kit.batch(list(rows.values())))

    for first in ("order", "payment"):
        assert [at for at in range(97, 108) if matches(at, first)] == [99, 100, 101, 102, 103, 104, 105]


def test_an_unmatched_row_comes_out_when_the_watermark_has_passed_its_time() -> None:
    kit = kit_of("outer", within=(2, 10))
    kit.batch([order(0, 1), payment(0, 2, key="b")])
    kit.batch([order(2, 3, key="z")])  # the watermark comes to 2
    assert ids(kit.batch()) == [], "a partner at 2 would not be late"
    kit.batch([order(2.001, 4, key="z")])
    assert ids(kit.batch()) == [(None, 2)], "its partners are at most 2 s later than itself"
    kit.batch([order(10, 5, key="z")])
    assert ids(kit.batch([payment(10, 6)])) == [(1, 6)], "the last moment"
    kit.batch([order(10.001, 7, key="z")])
    assert ids(kit.batch([payment(10.001, 8)])) == [], "its partner has left"
    assert kit.get_all("a").keys() == {"right"}
    kit.batch([order(100, 9, key="z")])
    assert ids(kit.batch()) == [(None, 8), (3, None), (4, None), (5, None), (7, None)]
    assert set(kit.state()) == {"z"}


def test_inner_joins_forget_what_is_over_without_a_word() -> None:
    kit = kit_of()
    kit.batch([order(0, 1), payment(1, 2), payment(50, 3)])
    assert len(kit.get_all("a")["right"]) == 2
    assert kit.batch([order(1000, 4, key="z")]) == []
    assert kit.batch() == []
    assert set(kit.state()) == {"z"}
    assert not any(b"a" in record[1:3] for record in kit.records()), "no header and no timer is left either"


def test_late_rows_are_dropped_unless_they_are_wanted() -> None:
    for late, expected in (("drop", []), ("accept", [(1, 2)])):
        kit = kit_of(late=late)
        kit.batch([order(0, 1)])
        kit.batch([order(5, 3, key="z")])
        assert ids(kit.batch([payment(4, 2)])) == expected
        assert kit.last_batch is not None
        assert kit.last_batch.late_rows == 1


def test_a_late_row_whose_partners_have_left_comes_out_at_once() -> None:
    kit = kit_of("outer", late="accept")
    kit.batch([order(0, 1), order(100, 9, key="z")])
    assert ids(kit.batch()) == [(1, None)]
    assert ids(kit.batch([payment(1, 2)])) == [(None, 2)]
    assert set(kit.state()) == {"z"}


def test_rows_of_one_moment_do_not_replace_each_other() -> None:
    kit = kit_of("outer", delay=5)
    kit.batch([order(0, 1), order(0, 1), order(0, 2)])
    kit.batch([order(0, 3), order(0, 1)])
    assert sorted(ids(kit.batch([payment(0, 7)]))) == [(1, 7), (1, 7), (1, 7), (2, 7), (3, 7)]


def test_state_does_not_depend_on_the_order_of_rows() -> None:
    rows = [order(0, 1), order(0, 2), payment(0, 3), order(-1, 4), payment(0, 5)]
    found = []
    for chance in range(5):
        kit = kit_of("outer")
        given = list(rows)
        random.Random(chance).shuffle(given)
        output = kit.batch(given)
        found.append((kit.records(), output))
    assert found.count(found[0]) == len(found)


def test_a_key_with_many_waiting_rows() -> None:
    """More than are read along with the key, and more than one page."""
    kit = kit_of("outer", within="1 hour", delay="2 hours")
    kit.batch([order(at, at) for at in range(1200)])
    kit.batch([order(3000 + at, 2000 + at) for at in range(300)])
    assert sorted(ids(kit.batch([payment(4700, 1)]))) == [
        *((number, 1) for number in range(1100, 1200)),
        *((2000 + at, 1) for at in range(300)),
    ]
    kit.batch([order(100_000, 1, key="z")])
    rest = ids(kit.batch())
    assert rest == [(number, None) for number in range(1100)]
    assert set(kit.state()) == {"z"}


def test_a_row_of_no_input() -> None:
    with pytest.raises(InvalidInputError, match="input 'returns', but 'orders' and 'payments' are joined"):
        kit_of().batch([{**order(0), "input": "returns"}])


@pytest.mark.parametrize("within", ["soon", -1, (1,), (1, 2, 3), (1, -1), None, True])
def test_bounds_that_are_none(within: Any) -> None:
    with pytest.raises(ConfigurationError, match="within is"):
        kit_of(within=within)


def test_what_cannot_be_joined() -> None:
    with pytest.raises(ConfigurationError, match="how is 'cross'"):
        kit_of(how="cross")
    for inputs, key in ((("a", "a"), "k"), (("k", "b"), "k")):
        with pytest.raises(ConfigurationError, match="names of their own"):
            join_of(SCHEMA, inputs, COLUMNS, key_columns=(key,), tag="input", event_time="at", within=1, how="inner")


def test_the_schema_has_the_key_and_a_struct_per_input() -> None:
    _, schema = join_of(
        SCHEMA, ("o", "p"), COLUMNS, key_columns=("k",), tag="input", event_time="at", within=1, how="inner"
    )
    assert schema.simpleString() == (
        "struct<k:string,o:struct<at:timestamp,id:bigint>,p:struct<at:timestamp,id:bigint,amount:decimal(10,2)>>"
    )


EVERYTHING: dict[str, tuple[T.DataType, Any, Any]] = {
    "ts": (T.TimestampType(), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), -1),
    "ntz": (T.TimestampNTZType(), datetime(2024, 2, 29), 1709164800000000),
    "length": (T.DayTimeIntervalType(), timedelta(days=-1, microseconds=1), -86399999999),
    "day": (T.DateType(), date(1582, 10, 4), "1582-10-04"),
    "money": (T.DecimalType(38, 18), Decimal("-0.000000000000000001"), "-1E-18"),
    "raw": (T.BinaryType(), b"\0\xff", b"\0\xff"),
    "number": (T.LongType(), -(2**63), -(2**63)),
    "flag": (T.BooleanType(), False, False),
    "list": (T.ArrayType(T.DateType()), [date(2024, 1, 1), None], ["2024-01-01", None]),
    "plain": (T.ArrayType(T.StringType()), ["a", None], ["a", None]),
    "map": (
        T.MapType(T.DateType(), T.DecimalType(4, 1)),
        [(date(2024, 1, 1), Decimal("1.5")), (date(2024, 1, 2), None)],
        [["2024-01-01", "1.5"], ["2024-01-02", None]],
    ),
    "struct": (
        T.StructType([T.StructField("at", T.TimestampType()), T.StructField("n", T.IntegerType())]),
        {"at": START, "n": None},
        {"at": 1704067200000000},
    ),
    "null": (T.StringType(), None, ...),
}


def test_rows_of_all_types_are_stored_and_come_back() -> None:
    rows = StoredRows(T.StructType([T.StructField(name, kind) for name, (kind, _, _) in EVERYTHING.items()]))
    given = {name: value for name, (_, value, _) in EVERYTHING.items()}
    stored = rows.to_stored({**given, "other": 1})
    assert stored == {name: kept for name, (_, _, kept) in EVERYTHING.items() if kept is not ...}
    assert rows.to_row(stored) == given
    assert rows.to_row({}) == dict.fromkeys(given)


def test_a_type_that_cannot_be_stored() -> None:
    with pytest.raises(ConfigurationError, match="column 'v' is of type variant, which cannot be kept"):
        StoredRows(T.StructType([T.StructField("v", T.VariantType())]))


events = st.lists(
    st.tuples(st.sampled_from("ab"), st.booleans(), st.integers(0, 60), st.integers(0, 999)), max_size=25
)


@given(
    events,
    st.integers(0, 15),
    st.integers(0, 15),
    st.integers(0, 30),
    st.sampled_from(["inner", "left", "right", "outer"]),
    st.sampled_from(["drop", "accept"]),
    st.randoms(use_true_random=False),
)
def test_equals_a_join_of_everything(
    rows: list[tuple[str, bool, int, int]],
    before: int,
    after: int,
    delay: int,
    how: str,
    late: str,
    chance: random.Random,
) -> None:
    kit = kit_of(how, (before, after), delay, late)
    given = [
        (order if is_order else payment)(at + micros / 1_000_000, number, key)
        for number, (key, is_order, at, micros) in enumerate(rows)
    ]
    in_time: list[dict[str, Any]] = []
    left = given
    while left:
        size = chance.randint(1, len(left))
        batch, left = left[:size], left[size:]
        watermark = kit.watermark
        in_time += [row for row in batch if watermark is None or row["at"] >= watermark]
        output = kit.batch(batch)
        assert kit.replay() == output
        chance.choice([lambda: None, kit.restart, kit.restore, kit.compact])()
    kit.batch([order(10_000, key="z")])
    kit.batch()
    assert set(kit.state()) == {"z"}

    found = [pair for pair in ids(kit.outputs) if None not in pair]
    alone = [pair for pair in ids(kit.outputs) if None in pair]
    expected = pairs_of(in_time, before, after)
    if late == "drop":
        assert Counter(found) == Counter(expected)
    else:
        assert len(set(found)) == len(found)
        assert set(expected) <= set(found) <= set(pairs_of(given, before, after))
        in_time = given
    matched = {number for pair in found for number in pair}
    assert Counter(alone) == Counter(
        (row["id"], None) if row["input"] == "orders" else (None, row["id"])
        for row in in_time
        if row["id"] not in matched and how in (("left", "outer") if row["input"] == "orders" else ("right", "outer"))
    )


def pairs_of(rows: list[dict[str, Any]], before: int, after: int) -> list[tuple[int, int]]:
    return [
        (left["id"], right["id"])
        for left in rows
        for right in rows
        if (left["input"], right["input"]) == ("orders", "payments")
        and left["k"] == right["k"]
        and -before * SECOND <= right["at"] - left["at"] <= after * SECOND
    ]


def test_bounds_are_kept_to_the_microsecond() -> None:
    rows = [order(1), payment(1.0004, 1), payment(1.0006, 2)]
    assert ids(kit_of(within=timedelta(microseconds=500)).batch(rows)) == [(0, 1)]
