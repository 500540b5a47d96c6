"""The function's rows to Arrow; one that does not fit is named."""

from __future__ import annotations

from typing import Any

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
