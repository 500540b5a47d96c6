"""Output rows as records: keys, values and headers as told, in chunks, and nothing that the topic would not take."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from changelog_state.codec.headers import unpack_headers
from changelog_state.errors import OutputSchemaError
from changelog_state.task.output_avro import avro_rows
from changelog_state.task.output_records import OutputRecords, record_name
from changelog_state.task.spec import OutputTopic

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = pa.record_batch({"user": ["a", "b"], "shop": [b"\0x", b"y"], "total": [1, 2]})


def topic(**settings: Any) -> OutputTopic:
    return OutputTopic(
        **({"name": "totals", "format": "json", "key": ("user",), "largest_record_bytes": 1_000} | settings)
    )


def records(rows: pa.RecordBatch, **settings: Any) -> list[tuple[bytes | None, bytes | None, bytes | None]]:
    """Rows come with the ticket's column behind them, as from a program."""
    with_ticket = pa.record_batch(
        [*rows.columns, pa.nulls(rows.num_rows, pa.binary())], names=[*rows.schema.names, "ticket"]
    )
    chunks = OutputRecords(topic(**settings), rows.schema).of(with_ticket)
    return [row for chunk in chunks for row in zip(*(column.to_pylist() for column in chunk), strict=True)]


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (("user",), [b"a", b"b"]),
        (("shop",), [b"\0x", b"y"]),
        (("total",), [b"1", b"2"]),
        (("total", "user"), [b'{"total":1,"user":"a"}', b'{"total":2,"user":"b"}']),
    ],
)
@pytest.mark.parametrize("form", ["json", "avro"])
def test_keys(form: str, key: tuple[str, ...], keys: list[bytes]) -> None:
    assert [record[0] for record in records(ROWS, key=key, format=form)] == keys


def test_a_window_in_the_key() -> None:
    at = pa.timestamp("us", "UTC")
    window = pa.array([{"start": 0, "end": 3_600_000_000}], pa.struct([("start", at), ("end", at)]))
    rows = pa.record_batch({"sensor": ["roof"], "window": window})
    [(key, _, _)] = records(rows, key=("sensor", "window"))
    assert json.loads(key or b"") == {
        "sensor": "roof",
        "window": {"start": "1970-01-01T00:00:00.000000Z", "end": "1970-01-01T01:00:00.000000Z"},
    }


def test_the_fingerprint_knows_no_logical_types() -> None:
    def fingerprint(kind: pa.DataType) -> bytes:
        return avro_rows(pa.schema([("x", kind)]), "rows").single.fingerprint

    assert fingerprint(pa.decimal128(10, 2)) == fingerprint(pa.decimal128(10, 4))
    assert fingerprint(pa.timestamp("us", "UTC")) == fingerprint(pa.int64())


def test_json() -> None:
    found = records(ROWS)
    assert [json.loads(value or b"") for _, value, _ in found] == [
        {"user": "a", "shop": "AHg=", "total": 1},
        {"user": "b", "shop": "eQ==", "total": 2},
    ]
    assert [headers for _, _, headers in found] == [None, None]


def test_avro_is_read_under_the_schema_that_is_told() -> None:
    codec = avro_rows(ROWS.schema, record_name("totals")).single
    assert codec.schema_json.startswith('{"type":"record","name":"totals"')
    assert [codec.decode(value or b"") for _, value, _ in records(ROWS, format="avro")] == ROWS.to_pylist()


@pytest.mark.parametrize(
    ("name", "record"), [("totals", "totals"), ("shop.daily-totals", "shop_daily_totals"), ("3d", "_3d")]
)
def test_names_of_avro_records(name: str, record: str) -> None:
    assert record_name(name) == record


def test_given_columns() -> None:
    rows = pa.record_batch(
        {
            "value": pa.array(["v", None, "w"]),
            "key": pa.array([b"k", b"\0", None], pa.binary()),
            "other": [1, 2, 3],
            "headers": pa.array([[{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}], [], None], HEADERS),
        }
    )
    found = records(rows, format="columns", key=("key",))
    assert [(key, value) for key, value, _ in found] == [(b"k", b"v"), (b"\0", None), (None, b"w")]
    assert [None if packed is None else unpack_headers(packed) for _, _, packed in found] == [
        [("h", b"\xff"), ("h", None)],
        None,
        None,
    ]


def test_a_value_alone_is_enough() -> None:
    rows = pa.record_batch({"value": [b"v"]})
    assert records(rows, format="columns", key=()) == [(None, b"v", None)]
    with pytest.raises(OutputSchemaError, match="no key for topic totals: the rows have no column 'key'"):
        records(rows, format="columns", key=(), needs_key=True)


@pytest.mark.parametrize(("form", "key"), [("json", ("user",)), ("avro", ("total", "user"))])
def test_a_row_without_a_key_is_refused(form: str, key: tuple[str, ...]) -> None:
    rows = pa.record_batch({"user": ["a", None, None], "total": [1, 2, 3]})
    with pytest.raises(OutputSchemaError, match="column 'user' is null in 2 of 3 rows"):
        records(rows, format=form, key=key)


def test_a_compacted_topic_needs_keys() -> None:
    rows = pa.record_batch({"key": ["k", None], "value": ["v", "w"]})
    with pytest.raises(OutputSchemaError, match="column 'key' is null in 1 of 2 rows"):
        records(rows, format="columns", key=("key",), needs_key=True)


def test_a_header_without_a_name_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(OutputSchemaError, match="a header without a name"):
        records(pa.record_batch({"value": ["v"], "headers": headers}), format="columns", key=())


@pytest.mark.parametrize("column", ["value", "key", "headers"])
def test_what_is_too_large_is_refused_by_name(column: str) -> None:
    large = {"key": "k", "value": "v", "headers": [{"key": "h", "value": b"h"}]}
    large[column] = [{"key": "h", "value": b"x" * 1_000}] if column == "headers" else "x" * 1_000
    small = {"key": "k", "value": "v", "headers": None}
    schema = pa.schema([("key", pa.string()), ("value", pa.string()), ("headers", HEADERS)])
    rows = pa.RecordBatch.from_pylist([small, large], schema=schema)
    with pytest.raises(OutputSchemaError, match=r"an output row takes 1\d{3} bytes, topic totals takes .* 1000"):
        records(rows, format="columns", key=("key",))
    assert len(records(rows, format="columns", key=("key",), largest_record_bytes=2_000)) == 2


def test_chunks_are_bounded_and_keep_the_order() -> None:
    many = pa.record_batch({"key": [f"{n}" for n in range(12_000)], "value": ["v"] * 12_000})
    large = pa.record_batch({"key": [f"{n}" for n in range(6)], "value": ["x" * 5_000_000] * 6})
    for rows, sizes in ((many, [5_000, 5_000, 2_000]), (large, [1] * 6), (many.slice(0, 0), [])):
        made = OutputRecords(topic(format="columns", key=("key",), largest_record_bytes=10**7), rows.schema)
        chunks = list(made.of(rows))
        assert [len(keys) for keys, _, _ in chunks] == sizes
        assert [key for keys, _, _ in chunks for key in keys.to_pylist()] == [
            key.encode() for key in rows.column(0).to_pylist()
        ]
