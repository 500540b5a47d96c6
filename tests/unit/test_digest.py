"""The digest tells different pairs apart and equal ones not, however they are cut."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelog_state.codec.digest import EMPTY_DIGEST, PairDigest, RowDigest

Pairs = dict[bytes, bytes | None]
pairs = st.dictionaries(st.binary(min_size=1, max_size=6), st.none() | st.binary(max_size=6), max_size=12)


def digest(*chunks: list[tuple[bytes, bytes | None]]) -> bytes:
    made = PairDigest()
    for chunk in chunks:
        made.update([key for key, _ in chunk], [value for _, value in chunk])
    return made.digest()


@given(pairs, st.lists(st.integers(0, 12)))
@settings(deadline=None)
def test_chunks_do_not_matter(entries: Pairs, cuts: list[int]) -> None:
    items = sorted(entries.items())
    borders = [0, *sorted(min(cut, len(items)) for cut in cuts), len(items)]
    assert digest(*(items[start:end] for start, end in pairwise(borders))) == digest(items)


@given(pairs, pairs)
@settings(deadline=None)
def test_equal_only_if_equal(one: Pairs, other: Pairs) -> None:
    assert (digest(sorted(one.items())) == digest(sorted(other.items()))) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(b"a", b"")], [(b"a", None)]),
        ([(b"a", b"b"), (b"c", b"d")], [(b"a", b"bd"), (b"c", b"")]),
        ([(b"ab", b"c")], [(b"a", b"bc")]),
        ([(b"a", b"x"), (b"b", None)], [(b"a", None), (b"b", b"x")]),
        ([(b"a", b"x")], []),
    ],
)
def test_what_is_alike_but_different(
    one: list[tuple[bytes, bytes | None]], other: list[tuple[bytes, bytes | None]]
) -> None:
    assert digest(one) != digest(other)


@pytest.mark.parametrize(
    "chunks",
    [
        [[b"b", b"a"]],
        [[b"a", b"a"]],
        [[b"b"], [b"a"]],
        [[b"a"], [b"a"]],
        [[b"a", b"c"], [b"b", b"d"]],
    ],
)
def test_keys_must_ascend(chunks: list[list[bytes]]) -> None:
    made = PairDigest()
    with pytest.raises(ValueError, match="ascending"):  # noqa: PT012 (which chunk it is differs)
        for keys in chunks:
            made.update(keys, [None] * len(keys))


def test_count_and_nothing() -> None:
    made = PairDigest()
    made.update([], [])
    assert made.digest() == EMPTY_DIGEST
    made.update([b"a", b"b"], [None, b"1"])
    assert made.count == 2
    assert made.digest() == made.digest(), "asking changes nothing"
    assert len(made.digest()) == 16


def of_rows(*chunks: list[tuple[bytes | None, bytes | None]]) -> bytes:
    made = RowDigest(2)
    for chunk in chunks:
        made.update_columns(*(pa.array([row[n] for row in chunk], pa.binary()) for n in range(2)))
    return made.digest()


rows = st.lists(st.tuples(*[st.none() | st.binary(max_size=4)] * 2), max_size=8)


@given(rows, st.integers(0, 8))
@settings(deadline=None)
def test_rows_in_any_order_and_chunks(entries: list[tuple[bytes | None, bytes | None]], cut: int) -> None:
    assert of_rows(entries[:cut], entries[cut:]) == of_rows(entries)


@given(rows, rows)
@settings(deadline=None)
def test_rows_are_equal_only_if_equal_in_the_same_order(one: list[object], other: list[object]) -> None:
    assert (of_rows(one) == of_rows(other)) == (one == other)  # type: ignore[arg-type]


def test_order_of_rows_counts() -> None:
    assert of_rows([(b"a", None), (b"b", b"x")]) != of_rows([(b"b", b"x"), (b"a", None)])
