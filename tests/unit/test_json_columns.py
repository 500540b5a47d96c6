"""Columns as JSON: what any reader gets out of it is what was in the rows."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelog_state.codec.json_columns import json_objects, json_texts
from changelog_state.errors import ConfigurationError
from tests.support.arrow_columns import COLUMNS, ROWS


def expected(value: Any, kind: pa.DataType) -> Any:
    """What JSON has for a value."""
    if value is None:
        return None
    if pa.types.is_binary(kind):
        return b64encode(value).decode()
    if pa.types.is_timestamp(kind):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if kind.tz else "")
    if pa.types.is_date(kind):
        return value.isoformat()
    if pa.types.is_list(kind):
        return [expected(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return {key: expected(each, kind.item_type) for key, each in value}
    if pa.types.is_struct(kind):
        return {field.name: expected(value[field.name], field.type) for field in kind}
    return value


def read(texts: pa.Array) -> list[Any]:
    return [json.loads(text, parse_float=str) for text in texts.to_pylist()]


def with_numbers_as_text(value: Any) -> Any:
    """Only texts of numbers can be compared without loss."""
    return json.loads(json.dumps(value, default=str), parse_float=str)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type(name: str) -> None:
    column = COLUMNS[name]
    found = read(json_texts(column))
    wanted = [expected(value, column.type) for value in column.to_pylist()]
    if pa.types.is_floating(column.type):
        assert [None if text is None else float(text) for text in found] == wanted
    elif pa.types.is_decimal(column.type):
        assert [None if text is None else Decimal(text) for text in found] == wanted
    else:
        assert with_numbers_as_text(found) == with_numbers_as_text(wanted)


@pytest.mark.parametrize(
    ("key", "kind", "name"),
    [
        (date(2024, 2, 29), pa.date32(), "2024-02-29"),
        (datetime(2024, 2, 29, 12), pa.timestamp("us"), "2024-02-29T12:00:00.000000"),
        (b"\0\xff", pa.binary(), "AP8="),
        (7, pa.int64(), "7"),
        (True, pa.bool_(), "true"),
        (1.5, pa.float64(), "1.5"),
        (math.nan, pa.float64(), "NaN"),
        ('"', pa.string(), '"'),
    ],
)
def test_keys_of_maps_are_names(key: Any, kind: pa.DataType, name: str) -> None:
    assert read(json_texts(pa.array([[(key, 1)], []], pa.map_(kind, pa.int64())))) == [{name: 1}, {}]


def test_rows() -> None:
    whole = read(json_objects(list(COLUMNS), list(COLUMNS.values()), ROWS))
    assert [list(row) for row in whole] == [list(COLUMNS)] * ROWS
    for name, column in COLUMNS.items():
        assert [row[name] for row in whole] == read(json_texts(column)), name


@pytest.mark.parametrize(("start", "length"), [(1, 3), (2, 0), (4, 1)])
def test_a_slice_is_the_same_rows(start: int, length: int) -> None:
    whole = json_objects(list(COLUMNS), list(COLUMNS.values()), ROWS).to_pylist()
    part = json_objects(list(COLUMNS), [column.slice(start, length) for column in COLUMNS.values()], length)
    assert part.to_pylist() == whole[start : start + length]


@given(st.lists(st.none() | st.text(), max_size=20))
@settings(deadline=None)
def test_any_text(texts: list[str | None]) -> None:
    assert [json.loads(text) for text in json_texts(pa.array(texts, pa.string())).to_pylist()] == texts


@given(st.lists(st.floats(), max_size=20))
@settings(deadline=None)
def test_any_float(numbers: list[float]) -> None:
    for text, number in zip(json_texts(pa.array(numbers, pa.float64())).to_pylist(), numbers, strict=True):
        found = json.loads(text)
        assert type(found) is (float if math.isfinite(number) else str)
        assert float(found) == number or math.isnan(number)


def test_what_json_has_no_numbers_for() -> None:
    strange = pa.array([math.nan, math.inf, -math.inf, None, 1.0])
    assert json_texts(strange).to_pylist() == ['"NaN"', '"Infinity"', '"-Infinity"', "null", "1.0"]


def test_keys_of_maps_are_texts() -> None:
    maps = pa.array([[(1, "a"), (-2, None)]], pa.map_(pa.int32(), pa.string()))
    assert json_texts(maps).to_pylist() == ['{"1":"a","-2":null}']


def test_names_are_escaped_and_there_may_be_none() -> None:
    assert json_objects(['a"'], [pa.array([1])], 1).to_pylist() == ['{"a\\"":1}']
    assert json_objects([], [], 2).to_pylist() == ["{}", "{}"]


@pytest.mark.parametrize("kind", [pa.duration("us"), pa.list_(pa.duration("us"))])
def test_other_types_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(ConfigurationError, match=r"type duration\[us\] cannot be written as JSON"):
        json_texts(pa.nulls(0, kind))
