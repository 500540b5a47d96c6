"""Columns as Avro, read by fastavro under the schema that goes with them."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelog_state.errors import ConfigurationError
from changelog_state.task.output_avro import avro_rows
from tests.support.arrow_columns import COLUMNS, ROWS


def expected(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind):
        return [expected(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {key: expected(each, kind.item_type) for key, each in value}
    if pa.types.is_struct(kind):
        return {field.name: expected(value[field.name], field.type) for field in kind}
    return value


def written(**columns: pa.Array) -> list[Any]:
    rows = avro_rows(pa.schema([(name, column.type) for name, column in columns.items()]), "rows")
    encoded = rows.encode(list(columns.values()))
    found = rows.decode(encoded)
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in columns.values()]
    return [rows.single.decode(each) for each in encoded.to_pylist()]


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type(name: str) -> None:
    column = COLUMNS[name]
    wanted = [{name: expected(value, column.type)} for value in column.to_pylist()]
    assert written(**{name: column}) == wanted


@pytest.mark.parametrize(("start", "length"), [(0, ROWS), (1, 3), (2, 0), (4, 1)])
def test_rows_and_slices(start: int, length: int) -> None:
    columns = {name: column.slice(start, length) for name, column in COLUMNS.items()}
    found = written(**columns)
    assert [list(row) for row in found] == [list(COLUMNS)] * length
    for name, column in columns.items():
        assert [row[name] for row in found] == [expected(value, column.type) for value in column.to_pylist()], name


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30))
@settings(deadline=None)
def test_the_bytes_of_any_number_are_fastavros(numbers: list[int | None]) -> None:
    rows = avro_rows(pa.schema([("n", pa.int64())]), "rows")
    schema = fastavro.parse_schema(json.loads(rows.single.schema_json))
    for number, data in zip(numbers, rows.encode([pa.array(numbers, pa.int64())]), strict=True):
        body = BytesIO()
        fastavro.schemaless_writer(body, schema, {"n": number})
        assert data.as_py()[10:] == body.getvalue()


def test_a_new_column_can_be_read_into_old_rows() -> None:
    old = avro_rows(pa.schema([("a", pa.int64())]), "rows")
    new = avro_rows(pa.schema([("a", pa.int64()), ("b", pa.string())]), "rows")
    [data] = old.encode([pa.array([1])]).to_pylist()
    schemas = [fastavro.parse_schema(json.loads(rows.single.schema_json)) for rows in (old, new)]
    assert fastavro.schemaless_reader(BytesIO(data[10:]), *schemas) == {"a": 1, "b": None}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([("my column", pa.int64())]), r"columns \['my column'\] cannot be fields of an Avro record"),
        (pa.schema([("d", pa.duration("us"))]), "column 'd' is of type duration"),
        (pa.schema([("m", pa.map_(pa.int32(), pa.int32()))]), "column 'm' is of type map"),
        (pa.schema([("s", pa.struct([("d", pa.duration("us"))]))]), r"column 's\.d' is of type duration"),
    ],
)
def test_what_avro_does_not_have(schema: pa.Schema, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        avro_rows(schema, "rows")
