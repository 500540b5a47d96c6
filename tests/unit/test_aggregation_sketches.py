"""Sketches of many keys at once against one sketch in plain Python; and how well they estimate."""

from __future__ import annotations

import math
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelog_state.aggregation.functions.hyperloglog import entries_of, estimates, merged_sketches


def entry(hashed: int, p: int) -> int:
    """As Spark's half makes it: register, and trailing zeros of the rest."""
    rest = hashed & ((1 << (64 - p)) - 1) | 1 << (64 - p)
    rank = (rest & -rest).bit_length()
    return hashed >> (64 - p) << 6 | rank


def plain(entries: set[int], p: int) -> bytes:
    ranks: dict[int, int] = {}
    for each in entries:
        ranks[each >> 6] = max(ranks.get(each >> 6, 0), each & 63)
    if 3 * len(ranks) < 1 << p:
        return b"".join((register << 6 | ranks[register]).to_bytes(3, "big") for register in sorted(ranks))
    return bytes(ranks.get(register, 0) for register in range(1 << p))


def merged(sketches: list[bytes], entries: list[list[int]], p: int) -> list[bytes]:
    found = merged_sketches(pa.array(sketches, pa.binary()), pa.array(entries, pa.list_(pa.int32())), p)
    return found.to_pylist()  # type: ignore[no-any-return]


@settings(deadline=None)
@given(st.data())
def test_merging_is_that_of_plain_sketches(data: st.DataObject) -> None:
    p = data.draw(st.sampled_from([4, 5, 9]))
    hashes = st.integers(0, 2**64 - 1) | st.integers(0, 63).map(lambda bit: 1 << bit) | st.just(0)
    some = st.lists(hashes.map(lambda hashed: entry(hashed, p)), max_size=8)
    rows = data.draw(st.integers(1, 5))
    seen: list[set[int]] = [set() for _ in range(rows)]
    sketches = [b""] * rows
    for _ in range(data.draw(st.integers(1, 5))):
        batch = [data.draw(some) for _ in range(rows)]
        sketches = merged(sketches, batch, p)
        for known, new in zip(seen, batch, strict=True):
            known.update(new)
        assert sketches == [plain(known, p) for known in seen]


def _hash(value: int) -> int:
    return int.from_bytes(blake2b(value.to_bytes(8, "big"), digest_size=8).digest(), "big")


@pytest.mark.parametrize("p", [9, 12])
def test_estimates_are_within_the_error_that_is_promised(p: int) -> None:
    """From one to many more than there are registers, several keys each; the root mean square of the errors."""
    counts = [1, 10, 100, 1_000, 3_000, 10_000]
    keys = 8
    for count in counts:
        lists = [[entry(_hash(key << 32 | value), p) for value in range(count)] for key in range(keys)]
        sketches = pa.array(merged([b""] * keys, lists, p), pa.binary())
        errors = estimates(sketches, p) / count - 1
        expected = 1.04 / math.sqrt(1 << p)
        assert math.sqrt(float(np.mean(errors**2))) < 1.8 * expected, count


def test_small_counts_are_all_but_exact() -> None:
    p = 12
    lists = [[entry(_hash(value), p) for value in range(count)] for count in range(30)]
    sketches = pa.array(merged([b""] * len(lists), lists, p), pa.binary())
    assert np.abs(np.rint(estimates(sketches, p)) - np.arange(30)).max() <= 1


def test_a_sketch_never_takes_more_bytes_than_it_has_registers() -> None:
    p = 5
    sketch, sizes = b"", []
    for value in range(200):
        [sketch] = merged([sketch], [[entry(_hash(value), p)]], p)
        sizes.append(len(sketch))
    assert sizes[0] == 3
    assert max(sizes) == sizes[-1] == 1 << p
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("p", [4, 9])
def test_entries_are_those_that_made_a_sketch(p: int) -> None:
    registers = 1 << p
    lists = [[], [5 << 6 | 3], [each << 6 | (each % 7 + 1) for each in range(registers)]]
    sketches = merged_sketches(pa.array([b""] * 3, pa.binary()), pa.array(lists, pa.list_(pa.int32())), p)
    assert entries_of(sketches, p).to_pylist() == lists
    assert entries_of(sketches.slice(1), p).to_pylist() == lists[1:]
