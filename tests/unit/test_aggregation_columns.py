"""Keys and expiring values as whole columns are those of one at a time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelog_state.aggregation.key_columns import encode_key_columns
from changelog_state.aggregation.lifetimes import expiring_values, visible_values
from changelog_state.codec.expiring import encode_expiring
from changelog_state.codec.keys import KeyCodec

_PARTS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "string": (pa.string(), st.text("ab\0\1é", max_size=4)),
    "binary": (pa.binary(), st.binary(max_size=4) | st.sampled_from([b"\0", b"\1", b"\1\1\0"])),
    "boolean": (pa.bool_(), st.booleans()),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
}


@settings(deadline=None)
@given(st.lists(st.sampled_from(list(_PARTS)), min_size=1, max_size=3), st.data())
def test_key_columns(names: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*(_PARTS[name][1] for name in names)), min_size=1, max_size=6))
    columns = [list(column) for column in zip(*rows, strict=True)]
    codec = KeyCodec(tuple(names))
    arrays = [pa.array(column, _PARTS[name][0]) for name, column in zip(names, columns, strict=True)]
    assert encode_key_columns(codec, arrays).to_pylist() == codec.encode_columns(columns)
    start = data.draw(st.integers(0, len(rows) - 1))
    assert encode_key_columns(codec, [array.slice(start) for array in arrays]).to_pylist() == codec.encode_columns(
        [column[start:] for column in columns]
    )


@pytest.mark.parametrize("expires_ms", [0, 5_000, -1, 2**60])
def test_values_expire_as_single_ones_do(expires_ms: int) -> None:
    values = pa.array([b"one", b"", b"three" * 50], pa.binary())
    for by_event_time in (False, True):
        found = expiring_values(values, pa.array([expires_ms] * 3), by_event_time=by_event_time)
        assert found.to_pylist() == [
            encode_expiring(value, expires_ms, by_event_time=by_event_time) for value in values.to_pylist()
        ]


def test_what_is_visible() -> None:
    stored = [
        None,
        b"plain",
        encode_expiring(b"still there", 1_001),
        encode_expiring(b"over", 1_000),
        encode_expiring(b"still there", 501, by_event_time=True),
        encode_expiring(b"over", 500, by_event_time=True),
    ]
    expected = [None, b"plain", b"still there", None, b"still there", None]
    assert visible_values(pa.array(stored, pa.binary()), 1_000, 500).to_pylist() == expected
    without = visible_values(pa.array(stored, pa.binary()), 1_000, None).to_pylist()
    assert without == [None, b"plain", b"still there", None, b"still there", b"over"]
