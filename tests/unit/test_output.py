"""The function's rows to Arrow; one that does not fit is named."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest

from changelog_state.errors import OutputSchemaError
from changelog_state.task.output import OutputRows

SCHEMA = pa.schema([("id", pa.string()), ("total", pa.int64()), ("ticket", pa.binary())])


def test_rows_and_ticket() -> None:
    output = OutputRows(SCHEMA)
    batch = output.to_arrow([{"id": "a", "total": 1}, {"total": None, "id": "b"}, {"id": "c"}, {}])
    assert batch.schema == SCHEMA
    assert batch.to_pylist() == [
        {"id": "a", "total": 1, "ticket": None},
        {"id": "b", "total": None, "ticket": None},
        {"id": "c", "total": None, "ticket": None},
        {"id": None, "total": None, "ticket": None},
    ]
    assert output.ticket(b"t").to_pylist() == [{"id": None, "total": None, "ticket": b"t"}]


@pytest.mark.parametrize("fields", [0, 1, 3])
def test_any_number_of_fields(fields: int) -> None:
    names = [f"f{number}" for number in range(fields)]
    schema = pa.schema([*((name, pa.int64()) for name in names), ("ticket", pa.binary())])
    row = dict.fromkeys(names, 5)
    assert OutputRows(schema).to_arrow([row, row]).to_pylist() == [{**row, "ticket": None}] * 2


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": "a", "totl": 1}, r"\['totl'\].*schema= \['id', 'total'\]"),
        ({"id": "a", "total": 1, "more": 2}, r"\['more'\]"),
        ({"id": "a", "ticket": b"forged"}, r"\['ticket'\]"),
        (("a", 1), "a tuple"),
        ("ab", "a str"),
        (None, "a NoneType"),
        (5, "an? int"),
        ({"id": "a", "total": "many"}, "'total' is 'many' .str.*int64"),
        ({"id": "a", "total": 2**63}, "'total' is 9223372036854775808"),
        ({"id": "a", "total": 1.5}, "'total' is 1.5 .float"),
        ({"id": 7, "total": 1}, "'id' is 7 .int"),
        ({"id": "x" * 1_000, "total": "no"}, "…"),
    ],
)
def test_a_row_that_does_not_fit_is_named(row: Any, words: str) -> None:
    good = {"id": "fine", "total": 1}
    with pytest.raises(OutputSchemaError, match=words) as raised:
        OutputRows(SCHEMA).to_arrow([good, row, good])
    assert "fine" not in str(raised.value), "the row that is wrong, not another"


LONG = pa.int64()
PAIR = pa.struct([("a", LONG), ("b", LONG)])
COUNTS = pa.map_(pa.string(), LONG)


class Pair(NamedTuple):
    a: Any
    b: Any


def column(kind: pa.DataType, *values: Any) -> list[Any]:
    schema = pa.schema([("x", kind), ("ticket", pa.binary())])
    found: list[Any] = OutputRows(schema).to_arrow([{"x": value} for value in values]).column(0).to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (pa.list_(LONG), [1, 1.5], "1.5 is not a whole number"),
        (pa.list_(pa.int32()), [Decimal("1.5")], "'1.5'. is not a whole number"),
        (pa.list_(pa.list_(LONG)), [[1], None, [1.5]], "1.5 is not"),
        (PAIR, {"a": 1.5}, "1.5 is not"),
        (PAIR, Pair(1, 1.5), "1.5 is not"),
        (PAIR, {"a": 1, "zz": 3}, r"fields \['zz'\] are not in struct \['a', 'b'\]"),
        (pa.list_(PAIR), [{"a": 1}, {"c": 1}], r"fields \['c'\]"),
        (COUNTS, {"a": 1.5}, "1.5 is not"),
        (COUNTS, [("a", 1.5)], "1.5 is not"),
        (pa.map_(LONG, pa.string()), {1.5: "a"}, "1.5 is not"),
        (pa.timestamp("us", "UTC"), 1.5, "a float is not a time; give a datetime"),
        (pa.date32(), Decimal(1), "a Decimal is not a time"),
        (pa.date32(), pd.NaT, "NaT is not a time; give None"),
        (pa.struct([("at", pa.list_(pa.timestamp("us")))]), {"at": [1.0]}, "a float is not a time"),
    ],
)
def test_what_is_nested_has_to_fit_too(kind: pa.DataType, value: Any, words: str) -> None:
    with pytest.raises(OutputSchemaError, match=f"'x' is .*{words}"):
        column(kind, None, value)


def test_nested_values_that_fit() -> None:
    assert column(pa.list_(LONG), [1, 2.0], (Decimal(3), None), None, []) == [[1, 2], [3, None], None, []]
    assert column(PAIR, {"b": 1}, {}, None) == [{"a": None, "b": 1}, {"a": None, "b": None}, None]
    assert column(PAIR, Pair(1, 2)) == [{"a": 1, "b": 2}]
    assert column(PAIR, [("a", 5)]) == [{"a": 5, "b": None}]
    assert column(COUNTS, {"a": 1}, [("b", None)], None) == [[("a", 1)], [("b", None)], None]
    at = datetime(2024, 5, 1)
    assert column(pa.timestamp("us"), at, None) == [at, None]
