"""Encoded keys behave like the keys: same order, same identity, and none hides inside another."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from changelog_state.codec.keys import KeyCodec, record_key, split_record_key
from changelog_state.codec.kinds import DATA

# Characters around the escape, and some whose UTF-16 order differs from their code point order.
_CHARACTERS = st.sampled_from("\0\1\2\3ab\x7f\x80é\ud7ff\ue000\uffff😀") | (
    (st.integers(0, 0xD7FF) | st.integers(0xE000, 0x10FFFF)).map(chr)
)


def texts(max_size: int = 10) -> st.SearchStrategy[str]:
    return st.lists(_CHARACTERS, max_size=max_size).map("".join)


_BYTES = st.lists(st.sampled_from([0, 1, 2, 3, 0x61, 0xFE, 0xFF]) | st.integers(0, 255), max_size=6).map(bytes)
_NAMES = texts(max_size=4)


def _integers(bits: int) -> st.SearchStrategy[int]:
    limit = 1 << (bits - 1)
    return st.integers(-limit, limit - 1) | st.integers(max(-300, -limit), min(300, limit - 1))


PARTS: dict[str, st.SearchStrategy[Any]] = {
    "string": texts(max_size=6),
    "binary": _BYTES,
    "boolean": st.booleans(),
    "byte": _integers(8),
    "short": _integers(16),
    "int": _integers(32),
    "long": _integers(64),
}


def keys_of(codec: KeyCodec) -> st.SearchStrategy[Any]:
    parts = [PARTS[name] for name in codec.types]
    return parts[0] if len(parts) == 1 else st.tuples(*parts)


codecs = st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=4).map(lambda t: KeyCodec(tuple(t)))
codec_and_two_keys = codecs.flatmap(lambda c: st.tuples(st.just(c), keys_of(c), keys_of(c)))
codec_and_keys = codecs.flatmap(lambda c: st.tuples(st.just(c), st.lists(keys_of(c), max_size=8)))


@given(codec_and_two_keys)
def test_bytes_compare_as_keys_do(case: tuple[KeyCodec, Any, Any]) -> None:
    codec, a, b = case
    assert (codec.encode(a) < codec.encode(b)) == (a < b)
    assert (codec.encode(a) == codec.encode(b)) == (a == b)


@given(codec_and_two_keys)
def test_no_key_is_the_beginning_of_another(case: tuple[KeyCodec, Any, Any]) -> None:
    codec, a, b = case
    assert codec.encode(b).startswith(codec.encode(a)) == (a == b)


@given(texts(max_size=3), texts(max_size=3))
def test_not_even_a_key_that_goes_on_with_control_characters(text: str, more: str) -> None:
    codec = KeyCodec(("string",))
    assert codec.encode(text + more).startswith(codec.encode(text)) == (more == "")


@given(codec_and_two_keys, st.binary(max_size=4))
def test_a_key_ends_where_it_says(case: tuple[KeyCodec, Any, Any], behind: bytes) -> None:
    codec, a, _ = case
    encoded = codec.encode(a)
    assert codec.decode(b"??" + encoded + behind, 2) == (a, 2 + len(encoded))


@given(codec_and_two_keys, _NAMES, _NAMES)
def test_record_keys_sort_by_key_then_name(case: tuple[KeyCodec, Any, Any], n: str, m: str) -> None:
    codec, a, b = case
    first, second = record_key(DATA, codec.encode(a), n), record_key(DATA, codec.encode(b), m)
    assert (first < second) == ((a, n) < (b, m))
    assert split_record_key(codec, first) == (DATA, a, n.encode())


@given(codec_and_keys)
def test_columns_are_encoded_like_single_keys(case: tuple[KeyCodec, list[Any]]) -> None:
    codec, keys = case
    rows = [key if isinstance(key, tuple) else (key,) for key in keys]
    columns = [[row[index] for row in rows] for index in range(len(codec.types))]
    assert codec.encode_columns(columns) == [codec.encode(key) for key in keys]


@given(texts(max_size=4), texts(max_size=2))
def test_a_text_prefix_finds_what_starts_with_it(text: str, start: str) -> None:
    codec = KeyCodec(("string",))
    assert codec.encode(text).startswith(codec.prefix(start)) == text.startswith(start)


@given(_BYTES, _BYTES.map(lambda b: b[:2]))
def test_a_binary_prefix_finds_what_starts_with_it(data: bytes, start: bytes) -> None:
    codec = KeyCodec(("binary",))
    assert codec.encode(data).startswith(codec.prefix(start)) == data.startswith(start)


@given(codec_and_two_keys, st.integers(0, 4))
def test_a_tuple_prefix_finds_the_keys_with_these_columns(case: tuple[KeyCodec, Any, Any], size: int) -> None:
    codec, a, b = case
    if isinstance(a, tuple):
        assert codec.encode(b).startswith(codec.prefix(a[:size])) == (b[:size] == a[:size])


@given(texts(), texts())
def test_utf8_keeps_the_order_of_str(a: str, b: str) -> None:
    assert (a < b) == (a.encode() < b.encode())
