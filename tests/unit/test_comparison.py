"""Two stores compared record by record."""

from __future__ import annotations

from changelog_state.codec.kinds import CLAIM, DATA, IMAGE, MARKER, META, SCHEMA, TIMER
from changelog_state.store.memory import MemoryStore
from restore.comparison import Difference, compare

RECORDS = {CLAIM: b"c", DATA + b"a": b"1", DATA + b"b": b"2", MARKER: b"m", SCHEMA + b"1": b"s", TIMER + b"t": b"9"}


def store_of(records: dict[bytes, bytes]) -> MemoryStore:
    store = MemoryStore()
    batch = store.batch()
    for key, value in records.items():
        batch.put(key, value)
    store.write(batch)
    return store


def test_equal_stores_have_equal_counts_and_digests() -> None:
    found = compare(store_of(RECORDS), store_of(dict(reversed(RECORDS.items()))), 10)
    assert (found.differences, found.undecided, found.first) == (0, 0, [])
    assert found.store.records == found.changelog.records == 6
    assert found.store.values == found.changelog.values == 2
    assert found.store.digest == found.changelog.digest != ""


def test_what_is_only_local_is_not_compared() -> None:
    local = store_of(RECORDS | {META + b"meta": b"{}", IMAGE + b"x": b"before"})
    assert compare(local, store_of(RECORDS), 10).differences == 0


def test_every_kind_of_difference() -> None:
    changed = {**RECORDS, DATA + b"a": b"other", DATA + b"extra": b"3"}
    del changed[TIMER + b"t"]
    found = compare(store_of(changed), store_of(RECORDS), 10)
    assert found.first == [
        Difference(DATA + b"a", b"other", b"1"),
        Difference(DATA + b"extra", b"3", None),
        Difference(TIMER + b"t", None, b"9"),
    ]
    assert [one.problem for one in found.first] == ["changed", "extra", "missing"]
    assert found.differences == 3
    assert found.store.digest != found.changelog.digest


def test_only_the_first_differences_are_kept_but_all_are_counted() -> None:
    many = {DATA + b"%06d" % number: b"x" for number in range(12_000)}
    found = compare(store_of(many), store_of({}), 3)
    assert found.differences == found.store.records == 12_000
    assert [one.record_key for one in found.first] == sorted(many)[:3]
    assert found.changelog.records == 0


def test_undecided_differences_are_counted_apart() -> None:
    changed = {**RECORDS, DATA + b"a": b"other", DATA + b"b": b"other"}
    found = compare(store_of(changed), store_of(RECORDS), 10, lambda one: one.record_key == DATA + b"a")
    assert (found.differences, found.undecided) == (1, 1)
    assert found.first == [Difference(DATA + b"b", b"other", b"2")]
