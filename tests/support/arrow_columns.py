"""Columns of every type that Spark has, with and without values: what codecs of whole columns are tried on."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

NOON = datetime(2024, 2, 29, 12, 0, 0, 123456)

COLUMNS: dict[str, pa.Array] = {
    "text": pa.array(['a "b"', None, "\x01\u00e9\n\U0001f600", "back\\slash", ""]),
    "plain_text": pa.array(["a", "b", None, "\u00e9", ""]),
    "raw": pa.array([b"\0\1\xff", None, b"", b"abc", b"x"], pa.binary()),
    "flag": pa.array([True, None, False, True, False]),
    "byte": pa.array([1, None, -128, 127, 0], pa.int8()),
    "short": pa.array([1, None, -(2**15), 2**15 - 1, 0], pa.int16()),
    "int": pa.array([1, None, -(2**31), 2**31 - 1, 0], pa.int32()),
    "long": pa.array([1, None, -(2**63), 2**63 - 1, 64], pa.int64()),
    "float": pa.array([1.5, None, -0.0, 16777216.0, 2.0], pa.float32()),
    "double": pa.array([1.0, None, 1e300, -1.5e-9, 0.1], pa.float64()),
    "decimal": pa.array(
        [Decimal("1.50"), None, Decimal("-0.01"), Decimal(0), Decimal("9" * 30)], pa.decimal128(38, 2)
    ),
    "date": pa.array([date(2024, 2, 29), None, date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31)]),
    "time": pa.array([NOON.replace(tzinfo=UTC), None, *(datetime(y, 1, 1, tzinfo=UTC) for y in (1969, 2024, 9999))]),
    "local_time": pa.array([NOON, None, datetime(1969, 1, 1), NOON, NOON]),
    "list": pa.array([[1, None], None, [], [3], [4, 5, 6]]),
    "lists": pa.array([[["a"], None], None, [], [[], ["b", 'c"']], [[None]]]),
    "map": pa.array([[("a", 1)], None, [], [("b", None), ('"', 3)], []], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 2, "b": ""}, {"a": 3, "b": "y"}]),
    "deep": pa.array(
        [[{"m": [("k", {"x": 1.5})]}], None, [], [{"m": None}, None], [{"m": []}]],
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.struct([("x", pa.float64())])))])),
    ),
    "nothing": pa.nulls(5),
}
ROWS = 5
