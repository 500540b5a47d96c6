from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from changelog_state.codec import kinds
from changelog_state.codec.entries import split_suffix
from changelog_state.codec.keys import KeyCodec, record_key, split_record_key
from changelog_state.errors import InvalidKeyError

STRING = KeyCodec(("string",))
BINARY = KeyCodec(("binary",))
LONG = KeyCodec(("long",))
MIXED = KeyCodec(("string", "int", "boolean", "binary"))


@pytest.mark.parametrize(
    ("types", "key", "expected"),
    [
        (("string",), "", "00"),
        (("string",), "abc", "616263 00"),
        (("string",), "é€😀", "c3a9 e282ac f09f9880 00"),
        (("string",), "a\0b\1c", "61 0101 62 0102 63 00"),
        (("binary",), b"\x00\x01\x02\xff", "0101 0102 02 ff 00"),
        (("boolean",), True, "04 01"),
        (("boolean",), False, "04 00"),
        (("long",), 0, "05 8000000000000000"),
        (("long",), -1, "05 7fffffffffffffff"),
        (("long",), 2**63 - 1, "05 ffffffffffffffff"),
        (("long",), -(2**63), "05 0000000000000000"),
        (("byte",), 1, "05 8000000000000001"),
        (("string", "long"), ("a", 1), "03 61 00 05 8000000000000001"),
        (("binary", "boolean"), (b"a", True), "02 61 00 04 01"),
    ],
)
def test_layout(types: tuple[str, ...], key: Any, expected: str) -> None:
    codec = KeyCodec(types)
    encoded = codec.encode(key)
    assert encoded == bytes.fromhex(expected)
    assert codec.decode(encoded) == (key, len(encoded))
    assert codec.bound(key) == encoded


def test_decoding_starts_at_the_offset_and_stops_at_the_end_of_the_key() -> None:
    encoded = MIXED.encode(("a\0", -5, True, b"\1"))
    assert MIXED.decode(b"xx" + encoded + b"name", 2) == (("a\0", -5, True, b"\1"), 2 + len(encoded))


@pytest.mark.parametrize(("name", "bits"), [("byte", 8), ("short", 16), ("int", 32), ("long", 64)])
def test_integers_are_checked_against_their_width(name: str, bits: int) -> None:
    codec = KeyCodec((name,))
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    assert codec.decode(codec.encode(low))[0] == low
    assert codec.decode(codec.encode(high))[0] == high
    for outside in (low - 1, high + 1):
        with pytest.raises(InvalidKeyError, match=rf"column 0 \({name}\) is {outside}, outside"):
            codec.encode(outside)


@pytest.mark.parametrize(
    ("codec", "key"),
    [
        (STRING, b"a"),
        (STRING, 1),
        (STRING, ("a",)),
        (BINARY, "a"),
        (LONG, True),
        (LONG, 1.0),
        (LONG, "1"),
        (LONG, np.timedelta64(1)),
        (LONG, np.bool_(True)),
        (KeyCodec(("boolean",)), 1),
        (KeyCodec(("boolean",)), "true"),
    ],
)
def test_a_key_of_another_type_is_refused(codec: KeyCodec, key: object) -> None:
    with pytest.raises(InvalidKeyError, match=r"key column 0 .* a Python .*; pass a "):
        codec.encode(key)


@pytest.mark.parametrize("types", [("string",), ("binary",), ("long",), ("boolean",)])
def test_null_is_refused(types: tuple[str, ...]) -> None:
    with pytest.raises(InvalidKeyError, match=r"key column 0 .* is null"):
        KeyCodec(types).encode(None)


def test_null_in_a_tuple_names_its_column() -> None:
    with pytest.raises(InvalidKeyError, match=r"key column 2 \(boolean\) is null"):
        MIXED.encode(("a", 1, None, b""))


@pytest.mark.parametrize("key", ["a", ["a", 1, True, b""], ("a", 1), ("a", 1, True, b"", 0), None])
def test_several_columns_need_a_tuple_of_that_length(key: object) -> None:
    with pytest.raises(InvalidKeyError, match=r"a key of 4 columns .*\(string, int, boolean, binary\)"):
        MIXED.encode(key)


def test_lone_surrogates_are_refused() -> None:
    for broken in ("\ud800", "ab\udfff"):
        with pytest.raises(InvalidKeyError, match="surrogates"):
            STRING.encode(broken)
        with pytest.raises(InvalidKeyError, match="surrogates"):
            STRING.encode_columns([["ok", broken]])
    with pytest.raises(InvalidKeyError, match="surrogates"):
        record_key(kinds.DATA, STRING.encode("a"), "\ud800")


def test_numpy_scalars_and_buffers_are_keys_too() -> None:
    assert LONG.encode(np.int64(-7)) == LONG.encode(-7)
    assert LONG.encode(np.uint8(200)) == LONG.encode(200)
    assert STRING.encode(np.str_("a")) == STRING.encode("a")
    assert KeyCodec(("boolean",)).encode(np.bool_(True)) == b"\x04\x01"
    assert BINARY.encode(bytearray(b"a\0")) == BINARY.encode(memoryview(b"a\0")) == BINARY.encode(b"a\0")


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (STRING, "61"),
        (STRING, ""),
        (STRING, "61 01 03 00"),
        (STRING, "61 01 00"),
        (STRING, "ff 00"),
        (LONG, "05 80000000000000"),
        (LONG, "03 8000000000000000"),
        (LONG, ""),
        (KeyCodec(("boolean",)), "04"),
        (KeyCodec(("boolean",)), "04 02"),
        (KeyCodec(("string", "long")), "03 61 00"),
    ],
)
def test_bytes_that_are_no_key_are_an_error(codec: KeyCodec, data: str) -> None:
    with pytest.raises(InvalidKeyError, match="bytes are not a key of"):
        codec.decode(bytes.fromhex(data))


def test_spark_names() -> None:
    names = ["string", "binary", "boolean", "tinyint", "smallint", "int", "bigint"]
    types = ("string", "binary", "boolean", "byte", "short", "int", "long")
    assert KeyCodec.from_spark(names).types == types


@pytest.mark.parametrize("name", ["double", "timestamp", "decimal(10,2)", "string collate UTF8_LCASE", "date"])
def test_other_spark_types_are_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(InvalidKeyError) as caught:
        KeyCodec.from_spark(["string", name])
    assert repr(name) in str(caught.value)
    assert "cast the column to string or long" in str(caught.value)


def test_a_key_needs_a_column() -> None:
    with pytest.raises(InvalidKeyError, match="no columns"):
        KeyCodec(())


def test_description_and_pickle_give_the_same_codec() -> None:
    described = json.loads(json.dumps(MIXED.describe()))
    assert KeyCodec(tuple(described)) == MIXED
    copy = pickle.loads(pickle.dumps(MIXED))
    assert copy == MIXED
    assert hash(copy) == hash(MIXED)
    assert copy.encode(("a", 1, True, b"")) == MIXED.encode(("a", 1, True, b""))


@pytest.mark.parametrize("types", [("string",), ("string", "long"), ("long",), ("boolean",), ("binary",)])
def test_a_null_in_a_column_is_refused_by_index(types: tuple[str, ...]) -> None:
    examples = {"string": "a", "long": 1, "boolean": True, "binary": b"a"}
    for bad in range(len(types)):
        columns: list[list[Any]] = [[examples[name]] * 3 for name in types]
        columns[bad][1] = None
        with pytest.raises(InvalidKeyError, match=rf"key column {bad} .* is null"):
            KeyCodec(types).encode_columns(columns)


def test_columns_must_fit_the_codec() -> None:
    with pytest.raises(InvalidKeyError, match="2 key columns were given; pass 1"):
        STRING.encode_columns([["a"], ["b"]])
    assert STRING.encode_columns([[]]) == []
    assert MIXED.encode_columns([[], [], [], []]) == []


def test_prefix_of_text() -> None:
    assert STRING.prefix("ab\0") == b"ab\x01\x01"
    assert STRING.prefix("") == b""
    assert BINARY.prefix(b"\x01") == b"\x01\x02"


def test_prefix_of_several_columns() -> None:
    full = ("a", 1, True, b"x")
    assert MIXED.prefix(()) == b""
    assert MIXED.encode(full).startswith(MIXED.prefix(("a", 1)))
    assert MIXED.prefix(full) == MIXED.encode(full)
    with pytest.raises(InvalidKeyError, match="or its leading parts"):
        MIXED.prefix((*full, 1))
    with pytest.raises(InvalidKeyError, match="or its leading parts"):
        MIXED.prefix("a")


def test_a_leading_column_is_matched_whole() -> None:
    codec = KeyCodec(("string", "long"))
    assert not codec.encode(("a\0", 1)).startswith(codec.prefix(("a",)))
    assert not codec.encode(("ab", 1)).startswith(codec.prefix(("a",)))


def test_a_single_number_has_no_prefix() -> None:
    with pytest.raises(InvalidKeyError, match="a key of type long has no prefix"):
        LONG.prefix(1)


@pytest.mark.parametrize("name", ["", "total", "größe", "a\0b"])
@pytest.mark.parametrize(("codec", "key"), [(STRING, "a\0"), (LONG, 7), (MIXED, ("", 0, False, b""))])
def test_record_keys_come_apart_again(codec: KeyCodec, key: Any, name: str) -> None:
    encoded = record_key(kinds.TIMER, codec.encode(key), name)
    assert encoded[:1] == kinds.TIMER
    assert split_record_key(codec, encoded) == (kinds.TIMER, key, name.encode())


def test_a_name_that_is_not_utf8_is_an_error() -> None:
    with pytest.raises(InvalidKeyError, match="state name ff is not UTF-8"):
        split_suffix(b"\xff")


def test_kinds_are_the_documented_bytes_and_differ() -> None:
    found = [kinds.DATA, kinds.TIMER, kinds.SCHEMA, kinds.MARKER, kinds.CLAIM, kinds.IMAGE, kinds.EXPIRY, kinds.META]
    assert b"".join(found) == b"dtsmcbxp"


@pytest.mark.parametrize("special", ["\0", "\1", "a\0\1", "\2"])
def test_one_special_character_among_many_rows_is_escaped(special: str) -> None:
    texts = ["a", "", special, "b"]
    assert STRING.encode_columns([texts]) == [STRING.encode(text) for text in texts]
    binaries = [text.encode() for text in texts]
    assert BINARY.encode_columns([binaries]) == [BINARY.encode(data) for data in binaries]
