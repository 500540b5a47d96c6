"""Whatever the borders of the Arrow batches, the groups are the same."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from changelog_state.task.grouping import grouped, row_maker

strings = st.lists(st.tuples(st.sampled_from(["", "a", "aa", "b", "\x00", "é"]), st.integers(0, 9)), max_size=30)
composite = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(-2, 2), st.booleans(), st.integers(0, 9)), max_size=30
)
cuts = st.lists(st.integers(0, 30), max_size=8)


def batches_of(rows: list[tuple[Any, ...]], schema: pa.Schema, borders: list[int]) -> Any:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    table = pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    limits = [0, *sorted(min(border, len(rows)) for border in borders), len(rows)]
    return (table.slice(start, end - start) for start, end in pairwise(limits))


def flat(groups: Any) -> list[tuple[Any, list[dict[str, Any]]]]:
    return [pair for keys, rows in groups for pair in zip(keys, rows, strict=True)]


@given(strings, cuts)
@settings(deadline=None)
def test_one_key_column(rows: list[tuple[str, int]], borders: list[int]) -> None:
    rows = sorted(rows)
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    found = flat(grouped(batches_of(rows, schema, borders), ("key",)))
    expected = [(key, [{"key": k, "n": n} for k, n in group]) for key, group in groupby(rows, key=lambda row: row[0])]
    assert found == expected


@given(composite, cuts)
@settings(deadline=None)
def test_several_key_columns(rows: list[tuple[str, int, bool, int]], borders: list[int]) -> None:
    rows = sorted(rows)
    schema = pa.schema([("s", pa.string()), ("i", pa.int32()), ("b", pa.bool_()), ("n", pa.int64())])
    found = flat(grouped(batches_of(rows, schema, borders), ("s", "i", "b")))
    expected = [
        (key, [dict(zip(("s", "i", "b", "n"), row, strict=True)) for row in group])
        for key, group in groupby(rows, key=lambda row: row[:3])
    ]
    assert found == expected


def test_a_key_is_held_back_until_it_is_complete() -> None:
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    rows = [("a", 1), ("b", 2), ("b", 3), ("b", 4), ("c", 5)]
    groups = grouped(batches_of(rows, schema, [2, 3]), ("key",))
    assert [keys for keys, _ in groups] == [["a"], ["b", "c"]], "the last batch has nothing to wait for"
    assert list(grouped(iter(()), ("key",))) == []


def test_rows_are_dicts_of_python_values() -> None:
    batch = pa.record_batch({"a'b": pa.array([1, None]), "x.y": pa.array([[1, 2], []]), 'q"': pa.array([b"1", b""])})
    assert row_maker(batch.schema.names)(batch) == [
        {"a'b": 1, "x.y": [1, 2], 'q"': b"1"},
        {"a'b": None, "x.y": [], 'q"': b""},
    ]
