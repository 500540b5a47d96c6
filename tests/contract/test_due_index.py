"""What is due, over every store, against the records themselves: whatever was added, moved, removed or restored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from changelog_state.codec.expiring import encode_expiring
from changelog_state.codec.kinds import DATA, TIMER
from changelog_state.codec.timers import TimerTime, encode_timer
from changelog_state.store.base import Store
from changelog_state.store.due_index import index_key, index_keys
from changelog_state.store.due_reading import due_records, next_due
from changelog_state.store.images import pack_images
from changelog_state.store.memory import MemoryStore
from changelog_state.store.meta import StoreMeta
from changelog_state.store.rocksdb import RocksMemory, RocksStore
from changelog_state.store.state_store import Chunk, StateStore

KEYS = [kind + f"key-{n:02d}".encode() + b"\0" for kind in (DATA, TIMER) for n in range(30)]
LATEST_MS = 200
Records = dict[bytes, bytes | None]


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else RocksStore(tmp_path / "db", RocksMemory(8, 8))
    yield opened
    opened.close()


def meta_at(position: int, begin: int | None) -> StoreMeta:
    return StoreMeta("topic", position, position - 1, begin, True, 1_000)


def commit(state: StateStore, changes: Records, position: int) -> None:
    keys = sorted(changes)
    previous = state.read(keys)
    chunk = Chunk(
        keys,
        [changes[key] for key in keys],
        pack_images(keys, previous),
        list(index_keys(zip(keys, previous, strict=True))),
        list(index_keys((key, changes[key]) for key in keys)),
    )
    state.commit([chunk], b"marker", meta_at(position, position - 1))


def some_changes(rng: random.Random, batch: int) -> Records:
    """Times go on with the batches, and now and then far back."""
    changes: Records = {}
    for key in rng.sample(KEYS, rng.randrange(1, 20)):
        at_ms = rng.randrange(-50, LATEST_MS) if rng.random() < 0.1 else min(batch * 2 + rng.randrange(20), LATEST_MS)
        by_event_time = rng.random() < 0.5
        what = rng.random()
        if what < 0.4:
            changes[key] = None
        elif key[:1] == TIMER:
            changes[key] = encode_timer(TimerTime(at_ms, by_event_time))
        elif what < 0.5:
            changes[key] = b"does not expire"
        else:
            changes[key] = encode_expiring(b"value", at_ms, by_event_time=by_event_time)
    return changes


def timed(records: Records) -> list[tuple[bytes, bytes]]:
    """(index key, record key) of all that have a time, in order."""
    found = [(index_key(key, value), key) for key, value in records.items() if value is not None]
    return sorted((at, key) for at, key in found if at is not None)


def check(state: StateStore, now: Records, before: Records, until_ms: int, limit: int) -> None:
    for records, is_before in ((now, False), (before, True)):
        for kind in (DATA, TIMER):
            for clock, by_event_time in ((b"p", False), (b"e", True)):
                prefix = b"x" + kind + clock
                expected = [
                    key
                    for at, key in timed(records)
                    if at.startswith(prefix) and int.from_bytes(at[3:11], "big") - (1 << 63) <= until_ms
                ]
                found = due_records(state, kind, until_ms, limit, by_event_time=by_event_time, before=is_before)
                assert [each.record_key for each in found] == expected[:limit]
                assert [each.value for each in found] == [records[key] for key in expected[:limit]]


def soonest(records: Records, clock: bytes) -> int | None:
    times = [int.from_bytes(at[3:11], "big") - (1 << 63) for at, _ in timed(records) if at[2:3] == clock]
    return min(times, default=None)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_due_is_what_the_records_say(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    state = StateStore(store)
    now: Records = {}
    for batch in range(1, 60):
        changes = some_changes(rng, batch)
        before, now = now, {**now, **changes}
        commit(state, changes, 10 * batch)
        if rng.random() < 0.2:
            state = StateStore(store)  # as after a restart
        check(state, now, before, rng.randrange(-60, LATEST_MS), rng.choice([1, 3, 1_000]))
        expected = {"processing": soonest(now, b"p"), "event": soonest(now, b"e")}
        assert next_due(state) == expected


def test_entries_that_a_restore_left_behind_only_make_the_next_time_too_early(store: Store) -> None:
    state = StateStore(store)
    key = KEYS[0]
    for position, at_ms in enumerate((10, 30), start=1):
        state.replay({key: encode_expiring(b"value", at_ms)}, meta_at(position, None))
        assert next_due(state) == {"processing": 10, "event": None}
    assert due_records(state, DATA, 20, 5, by_event_time=False, before=False) == []
    assert next_due(state) == {"processing": 30, "event": None}


def test_a_time_that_a_restore_brings_may_be_earlier_than_all_that_was_known(store: Store) -> None:
    state = StateStore(store)
    state.replay({KEYS[0]: encode_expiring(b"value", 100)}, meta_at(1, None))
    assert next_due(state) == {"processing": 100, "event": None}
    state.replay({KEYS[1]: encode_expiring(b"value", -5)}, meta_at(2, None))
    assert next_due(state) == {"processing": -5, "event": None}
    found = due_records(state, DATA, 0, 5, by_event_time=False, before=False)
    assert [each.record_key for each in found] == [KEYS[1]]


def test_the_first_entry_is_found_again_where_it_was_and_nothing_in_front_is_looked_at(store: Store) -> None:
    """What is deleted in front costs a step each, so it is not begun there."""
    state = StateStore(store)
    begins: list[bytes] = []
    scan_keys = store.scan_keys
    store.scan_keys = lambda start, end: begins.append(start) or scan_keys(start, end)  # type: ignore[method-assign, func-returns-value]
    commit(state, {key: encode_expiring(b"value", 10) for key in KEYS[:5]}, 10)
    next_due(state)
    commit(state, {key: encode_expiring(b"value", 50) for key in KEYS[:5]}, 20)
    assert next_due(state)["processing"] == 50
    begins.clear()
    assert next_due(state)["processing"] == 50
    assert begins[0] == index_key(KEYS[0], encode_expiring(b"value", 50))
