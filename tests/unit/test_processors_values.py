"""Rows of processors' states: what may be given, what is stored, what comes back."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, NullType, StructType

from changelog_state.codec.avro import encode_value
from changelog_state.codec.entries import encode_entry_key
from changelog_state.errors import ConfigurationError, ValueEncodingError
from changelog_state.processors.ddl import parse_schema
from changelog_state.processors.entry_keys import EntryKeys
from changelog_state.processors.pandas_rows import list_view, row_view
from changelog_state.processors.row_codec import RowCodec
from changelog_state.schemas.plain_values import decode_plain

EVERYTHING = (
    "flag boolean, b byte, s short, i int, l long, f float, d double, text string, raw binary, price decimal(10,2), "
    "day date, at timestamp, local timestamp_ntz, numbers array<int>, counts map<string, long>, "
    "inner struct<a: int, b: string>, many array<struct<at: timestamp>>"
)
NOON = datetime(2024, 1, 2, 12, 0, 0, 678)
ROW = (True, 1, 2, 3, 4, 1.5, 2.5, "x", b"\x01", Decimal("3.14"), date(2024, 1, 2), NOON, NOON, [1, None], {"k": 1})
ROW += ((7, "q"), [(NOON,)])


def nothing(fingerprint: bytes) -> str:
    raise AssertionError("no other schema is needed")


def codec_of(schema: str | StructType) -> RowCodec:
    return RowCodec(parse_schema(schema) if isinstance(schema, str) else schema, "seen")


def through(schema: str, row: Any) -> Any:
    codec = codec_of(schema)
    return codec.values(codec.decode(codec.encode(row), nothing))


def test_every_type_comes_back_as_spark_gives_it() -> None:
    found = through(EVERYTHING, ROW)
    assert found == ROW
    types = "bool int int int int float float str bytearray Decimal date datetime datetime list dict Row list"
    assert [type(each).__name__ for each in found] == types.split()
    assert found[15].__fields__ == ["a", "b"]
    assert found[16][0].at == NOON


def test_nulls_come_back_everywhere() -> None:
    assert through(EVERYTHING, (None,) * 17) == (None,) * 17
    assert through("a array<struct<x: int>>, m map<string, date>", ([None, (None,)], {"k": None})) == (
        [None, (None,)],
        {"k": None},
    )


def test_whoever_reads_the_changelog_finds_names_and_types() -> None:
    codec = codec_of("n long, price decimal(10,2), at timestamp, day date")
    assert codec.schema_json is not None
    at = datetime(2024, 1, 2, tzinfo=UTC)
    assert decode_plain(codec.schema_json, codec.encode((1, Decimal("2.5"), at, date(2024, 1, 2)))) == {
        "n": 1,
        "price": Decimal("2.50"),
        "at": at,
        "day": date(2024, 1, 2),
    }


@pytest.mark.parametrize(
    ("schema", "given", "kept"),
    [
        ("n long", np.int32(3), 3),
        ("n int", 3.0, 3),  # whole numbers in a pandas column with nulls
        ("n int", float("nan"), None),
        ("x double", 1, 1.0),
        ("x float", 0.1, 0.10000000149011612),
        ("x double", np.float32(1.5), 1.5),
        ("s string", True, "true"),
        ("s string", np.int64(5), "5"),
        ("flag boolean", np.True_, True),
        ("raw binary", "ä", bytearray("ä".encode())),
        ("d decimal(5,2)", Decimal("1.235"), Decimal("1.24")),
        ("d decimal(5,2)", 3, Decimal("3.00")),
        ("at timestamp", datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2))), datetime(2019, 12, 31, 22)),
        ("at timestamp", pd.Timestamp("2020-01-01 00:00:00.123456789"), datetime(2020, 1, 1, 0, 0, 0, 123456)),
        ("at timestamp", np.datetime64("2020-01-01T00:00:00.5", "ns"), datetime(2020, 1, 1, 0, 0, 0, 500000)),
        ("at timestamp", pd.NaT, None),
        ("day date", datetime(2020, 1, 1, 23), date(2020, 1, 1)),
        ("a array<int>", np.array([1.0, np.nan]), [1, None]),
        ("m map<string, int>", [("a", 1)], {"a": 1}),
        ("s struct<a: int, b: int>", {"b": 1}, (None, 1)),
        ("s struct<a: int, b: int>", {"b": 1, "more": 2}, (None, 1)),
    ],
)
def test_what_else_is_taken(schema: str, given: Any, kept: Any) -> None:
    [found] = through(schema, (given,))
    assert found == kept
    assert type(found) is type(kept) or isinstance(kept, tuple)


@pytest.mark.parametrize(
    ("schema", "row", "problem"),
    [
        ("n int", (1.5,), "n of state 'seen' is 1.5, a float, which is no whole number"),
        ("n int", (True,), "is no whole number"),
        ("n byte", (300,), "is 300, more than 8 bits"),
        ("n int", ("1",), "is no whole number"),
        ("n int, m int", {"n": 1, "mm": 2}, r"state 'seen' takes n, m, but was given a dict with \['mm'\]"),
        ("n int, m int", (1,), r"takes rows of 2 values \(n, m\), got 1"),
        ("n int", (1, 2), "takes rows of 1 values"),
        ("n int not null", (None,), "n of state 'seen' is None, but was declared as not null"),
        ("x float", (1e300,), "more than a float can hold"),
        ("x double", ("1",), "is no number"),
        ("s string", (1.5,), "is no string"),
        ("flag boolean", (1,), "is no boolean"),
        ("raw binary", (1,), "is no binary value"),
        ("d decimal(5,2)", (Decimal(123456),), r"does not fit decimal\(5,2\)"),
        ("d decimal(5,2)", (1.5,), "is no decimal"),
        ("at timestamp", ("2020-01-01",), "is no timestamp"),
        ("at timestamp", (date(2020, 1, 1),), "is no timestamp"),
        ("a array<int>", ("12",), "a of state 'seen' is '12', a str, which is no list"),
        ("a array<int>", ([1, "2"],), "an element of a of state 'seen' is '2'"),
        ("m map<string, int>", ("a",), "is no dict"),
        ("m map<string, int>", ({None: 1},), "a key of m of state 'seen' is None"),
        ("s struct<a: int>", (1,), "is no row"),
    ],
)
def test_what_spark_would_lose_without_a_word_is_an_error(schema: str, row: Any, problem: str) -> None:
    with pytest.raises(ValueEncodingError, match=problem):
        codec_of(schema).encode(row)


@pytest.mark.parametrize("schema", ["m map<int, string>", "`a b` int"])
def test_schemas_that_avro_cannot_have(schema: str) -> None:
    with pytest.raises(ConfigurationError):
        codec_of(schema)


@pytest.mark.parametrize("kind", [NullType(), ArrayType(NullType()), StructType().add("n", NullType())])
def test_a_type_without_values(kind: DataType) -> None:
    schema = StructType().add("n", kind)
    with pytest.raises(ConfigurationError, match="n of .*state 'seen' is of Spark's type void.*use the type"):
        RowCodec(schema, "seen")
    with pytest.raises(ConfigurationError, match="n of .*the key is of Spark's type void.*use the type"):
        EntryKeys(schema, "the key")


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ("`a b` int", "field 'a b' of state 'seen'"),
        ("`1a` int", "field '1a' of state 'seen'"),
        ("`a.b` int", "field 'a.b' of state 'seen'"),
        ("s struct<`sum(x)`: int>", r"field 'sum\(x\)' of s of state 'seen'"),
        ("s array<struct<`x²`: int>>", "field 'x²' of s of state 'seen'"),
        ("s map<string, struct<`𝒳`: int>>", "field '𝒳' of s of state 'seen'"),
    ],
)
def test_a_name_that_avro_does_not_take_is_told_with_its_state(schema: str, field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{field} has a name that Avro does not take; use letters"):
        codec_of(schema)


def test_names_are_of_all_alphabets() -> None:
    codec = codec_of("größe int, `数` struct<`имя`: string, `x٣`: int>")
    assert codec.schema_json is not None
    data = codec.encode((1, ("x", 2)))
    assert codec.values(codec.decode(data, nothing)) == (1, ("x", 2))
    assert decode_plain(codec.schema_json, data) == {"größe": 1, "数": {"имя": "x", "x٣": 2}}


def test_rows_of_an_earlier_schema() -> None:
    old = codec_of("n int, gone string, at timestamp")
    new = codec_of("added array<int>, n long, at timestamp")
    data = old.encode((5, "x", NOON))
    assert old.schema_json is not None
    assert new.values(new.decode(data, {old.fingerprint: old.schema_json}.__getitem__)) == (None, 5, NOON)


def test_what_was_not_written_by_a_processor() -> None:
    codec = codec_of("n int")
    assert codec.values(codec.decode(encode_value({"n": 1}), nothing)) == (1,)
    with pytest.raises(ValueEncodingError, match="seen has a stored value that does not fit"):
        codec.decode(encode_value(1), nothing)
    with pytest.raises(ValueEncodingError, match="a stored value cannot be read"):
        codec_of("s string").decode(codec_of("s string").encode(("hello",))[:-2], nothing)


# -- keys of maps -----------------------------------------------------------------------------------------

KEYS = "s string, n int, d decimal(5,1), x double, at timestamp, flag boolean, raw binary, wide decimal(30,2)"


def test_keys_come_back() -> None:
    keys = EntryKeys(parse_schema(KEYS + ", inner struct<a: int>"), "the key")
    for key in [
        ("x", 1, Decimal("1.5"), -0.5, NOON, True, b"", Decimal("5.11"), (1,)),
        ("", 0, Decimal(0), 0.0, NOON, False, b"\0", Decimal(-1), (None,)),
        (None,) * 9,
    ]:
        stored = keys.encode(key)
        encode_entry_key(stored)
        assert keys.decode(stored) == key


def test_keys_of_one_column_are_plain_and_in_order() -> None:
    for schema, values in [
        ("n int", [None, -5, 0, 255, 256]),
        ("s string", [None, "", "a", "aa", "b"]),
        ("d decimal(5,1)", [None, Decimal("-1.5"), Decimal("0.0"), Decimal("10.0")]),
        ("day date", [None, date(1969, 1, 1), date(2024, 1, 1)]),
        ("x double", [None, -5.5, 0.0, 3.25, float("inf")]),
    ]:
        keys = EntryKeys(parse_schema(schema), "the key")
        stored = [keys.encode((value,)) for value in values]
        assert sorted(stored, key=encode_entry_key) == stored, schema
        assert [keys.decode(each) for each in stored] == [(value,) for value in values]
    assert EntryKeys(parse_schema("n int"), "the key").encode((7,)) == 7


def test_zeros_and_nan_are_keys_of_their_own() -> None:
    keys = EntryKeys(parse_schema("x double"), "the key")
    stored = [keys.encode((value,)) for value in (0.0, -0.0, float("nan"))]
    assert len({encode_entry_key(each) for each in stored}) == 3
    assert [str(keys.decode(each)) for each in stored] == ["(0.0,)", "(-0.0,)", "(nan,)"]


def test_a_map_is_no_key() -> None:
    with pytest.raises(ConfigurationError, match="m of the key is a map"):
        EntryKeys(parse_schema("m map<string, int>"), "the key")


# -- rows through pandas ----------------------------------------------------------------------------------

COLUMNS = {
    "flag boolean": [True, False],
    "b byte": [1, -1],
    "i int": [3, 4],
    "l long": [1 << 60, 5],
    "f float": [1.5, -2.0],
    "x double": [2.5, 0.1],
    "s string": ["a", ""],
    "raw binary": [b"\x00", b""],
    "d decimal(5,2)": [Decimal("1.50"), Decimal("0.01")],
    "day date": [date(2024, 1, 2), date(1969, 1, 1)],
    "at timestamp": [NOON, datetime(2024, 7, 1)],
    "local timestamp_ntz": [NOON, datetime(2024, 7, 1)],
    "a array<long>": [[1, None], []],
    "m map<string, decimal(5,1)>": [{"k": Decimal("1.5")}, {}],
    "r struct<n: int, at: timestamp>": [(1, NOON), (None, None)],
}


def as_spark_does(schema: StructType, rows: list[tuple[Any, ...]], timezone: str) -> list[tuple[Any, ...]]:
    """Arrow, a frame, ``iloc``: what pyspark 4.0's clients for lists and maps do."""
    arrow = to_arrow_schema(schema)

    def zoned(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return pa.timestamp("us", timezone)
        return pa.struct([field.with_type(zoned(field.type)) for field in kind]) if pa.types.is_struct(kind) else kind

    def plain(value: Any) -> Any:
        return {"n": value[0], "at": local(value[1])} if isinstance(value, tuple) else local(value)

    def local(value: Any) -> Any:
        return value.astimezone(UTC) if isinstance(value, datetime) else value

    arrays = []
    for column, field in zip(zip(*rows, strict=True), arrow, strict=True):
        naive = pa.types.is_timestamp(field.type) and field.type.tz is None
        arrays.append(pa.array([each if naive else plain(each) for each in column], zoned(field.type)))
    frame = pa.RecordBatch.from_arrays(arrays, names=arrow.names).to_pandas()
    return [tuple(frame.iloc[number]) for number in range(len(frame))]


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_what_pandas_makes_of_them(seed: int) -> None:
    chance = random.Random(seed)
    words = chance.sample(sorted(COLUMNS), chance.choice((1, 1, 2, 3, 5)))
    with_nulls = chance.random() < 0.5
    rows = [
        tuple(None if with_nulls and chance.random() < 0.3 else chance.choice(COLUMNS[word]) for word in words)
        for _ in range(chance.choice((1, 4)))
    ]
    codec = codec_of(", ".join(words))
    records = [codec.decode(codec.encode(row), nothing) for row in rows]
    found = row_view(codec.schema, "America/New_York")(records)
    expected = as_spark_does(codec.schema, rows, "America/New_York")
    assert [[described(each) for each in row] for row in found] == [
        [described(each) for each in row] for row in expected
    ]


def described(value: Any) -> str:
    return f"{type(value)} {value!r} {getattr(value, 'dtype', '')}"


def test_later_versions_of_pyspark_give_plain_rows() -> None:
    codec = codec_of("n int, at timestamp")
    view = list_view(codec.schema, "UTC", through_pandas=False)
    assert view([codec.decode(codec.encode((None, NOON)), nothing)]) == [(None, NOON)]


def test_a_null_changes_the_types_of_its_frame_only() -> None:
    view = list_view(parse_schema("n int"), "UTC", through_pandas=True)
    found = view([{"n": number} for number in range(10_000)] + [{"n": None}, {"n": 7}])
    assert [type(found[number][0]) for number in (0, 9_999, 10_000, 10_001)] == [int, int, float, float]
