"""The contract of store/base.py, against every store that claims to fulfil it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelog_state.errors import CorruptStoreError, StoreError
from changelog_state.store.base import Store, next_prefix
from changelog_state.store.memory import MemoryStore
from changelog_state.store.rocksdb import RocksMemory, RocksStore

Open = Callable[[], Store]


@pytest.fixture(params=["memory", "rocksdb"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the same store each time; the one before must be closed."""
    if request.param == "memory":
        kept = MemoryStore()
        return lambda: kept
    memory = RocksMemory(8, 8)
    return lambda: RocksStore(tmp_path / "db", memory)


@pytest.fixture
def store(open_store: Open) -> Store:
    return open_store()


def put(store: Store, **entries: bytes) -> None:
    batch = store.batch()
    for key, value in entries.items():
        batch.put(key.encode(), value)
    store.write(batch)


def test_get_and_get_many(store: Store) -> None:
    put(store, a=b"1", b=b"", c=b"3")
    assert store.get(b"a") == b"1"
    assert store.get(b"b") == b"", "an empty value is a value"
    assert store.get(b"nothing") is None
    assert store.get_many([b"c", b"nothing", b"a", b"a", b"b"]) == [b"3", None, b"1", b"1", b""]
    assert store.get_many([]) == []


def test_any_bytes_are_keys_and_values(store: Store) -> None:
    keys = [b"\x00", b"\x00\x00", b"\xff", b"\xff\xff", bytes(range(256)), b"k" * 5_000]
    batch = store.batch()
    for key in keys:
        batch.put(key, key[::-1])
    store.write(batch)
    assert store.get_many(keys) == [key[::-1] for key in keys]
    assert [key for key, _ in store.scan(b"", None)] == sorted(keys)


def test_scan_is_ordered_and_bounded(store: Store) -> None:
    put(store, a=b"1", ab=b"2", b=b"3", ba=b"4", c=b"5")
    assert list(store.scan(b"", None)) == [(b"a", b"1"), (b"ab", b"2"), (b"b", b"3"), (b"ba", b"4"), (b"c", b"5")]
    assert [key for key, _ in store.scan(b"ab", b"ba")] == [b"ab", b"b"], "from the start, up to before the end"
    assert [key for key, _ in store.scan(b"aa", b"bz")] == [b"ab", b"b", b"ba"], "bounds need not exist"
    assert [key for key, _ in store.scan(b"b", None)] == [b"b", b"ba", b"c"]
    assert list(store.scan(b"d", None)) == []
    assert list(store.scan(b"c", b"a")) == []
    assert list(store.scan(b"b", b"b")) == []
    assert list(store.scan_keys(b"", None)) == [b"a", b"ab", b"b", b"ba", b"c"]
    assert list(store.scan_keys(b"ab", b"ba")) == [b"ab", b"b"]


def test_scan_is_of_the_moment_it_was_asked_for(store: Store) -> None:
    put(store, a=b"1", c=b"3")
    asked = store.scan(b"", None)
    begun = store.scan(b"", None)
    assert next(begun) == (b"a", b"1")
    batch = store.batch()
    batch.put(b"b", b"2")
    batch.put(b"c", b"changed")
    batch.delete(b"a")
    store.write(batch)
    assert list(asked) == [(b"a", b"1"), (b"c", b"3")]
    assert list(begun) == [(b"c", b"3")]
    assert list(store.scan(b"", None)) == [(b"b", b"2"), (b"c", b"changed")]


def test_bounds_of_several_scans_at_once(store: Store) -> None:
    """Each scan has its own bound, however they are interleaved."""
    batch = store.batch()
    for number in range(1_000):
        batch.put(b"%04d" % number, b"")
    store.write(batch)
    scans = [store.scan(b"%04d" % (n * 10), b"%04d" % (n * 10 + 5)) for n in range(50)]
    found: list[list[bytes]] = [[] for _ in scans]
    for _ in range(6):
        for n, scan in enumerate(scans):
            found[n] += [key for key, _ in [next(scan, (b"", b""))] if key]
    assert found == [[b"%04d" % (n * 10 + i) for i in range(5)] for n in range(50)]


def test_a_batch_shows_only_when_written_and_then_whole(store: Store) -> None:
    put(store, a=b"old")
    batch = store.batch()
    batch.put(b"a", b"new")
    batch.put(b"b", b"new")
    assert store.get_many([b"a", b"b"]) == [b"old", None]
    store.write(batch)
    assert store.get_many([b"a", b"b"]) == [b"new", b"new"]


def test_later_writes_of_a_batch_win(store: Store) -> None:
    put(store, b=b"old")
    batch = store.batch()
    batch.put(b"a", b"1")
    batch.put(b"a", b"2")
    batch.delete(b"a")
    batch.put(b"a", b"3")
    batch.put(b"b", b"new")
    batch.delete(b"b")
    batch.delete(b"never there")
    store.write(batch)
    assert store.get_many([b"a", b"b"]) == [b"3", None]


def test_delete_range_takes_what_was_there_and_leaves_the_batch_s_own_puts(store: Store) -> None:
    put(store, a=b"1", b=b"2", bb=b"3", c=b"4", d=b"5")
    batch = store.batch()
    batch.delete_range(b"b", b"d")
    batch.put(b"c", b"new")
    store.write(batch)
    assert list(store.scan(b"", None)) == [(b"a", b"1"), (b"c", b"new"), (b"d", b"5")]
    put(store, bb=b"later")
    assert store.get(b"bb") == b"later", "a range that was deleted can be written again"


def test_closed_and_opened_again_it_is_all_there(open_store: Open) -> None:
    store = open_store()
    put(store, a=b"1", b=b"2")
    batch = store.batch()
    batch.delete(b"a")
    store.write(batch)
    store.close()
    store.close()  # changes nothing
    store = open_store()
    assert list(store.scan(b"", None)) == [(b"b", b"2")]
    put(store, c=b"3")
    store.flush()
    store.close()
    assert [key for key, _ in open_store().scan(b"", None)] == [b"b", b"c"]


@pytest.mark.parametrize("seed", range(3))
def test_random_batches_equal_a_dict(seed: int, open_store: Open) -> None:
    rng = random.Random(seed)
    keys = [bytes(rng.choices(b"ab\x00\xff", k=rng.randint(1, 4))) for _ in range(40)]
    model: dict[bytes, bytes] = {}
    store = open_store()
    for step in range(60):
        batch = store.batch()
        if rng.random() < 0.2:
            start, end = sorted(rng.sample(keys, 2))
            batch.delete_range(start, end)
            model = {key: value for key, value in model.items() if not start <= key < end}
        for key in rng.choices(keys, k=rng.randint(0, 8)):
            if rng.random() < 0.3:
                batch.delete(key)
                model.pop(key, None)
            else:
                model[key] = b"%d" % step
                batch.put(key, model[key])
        store.write(batch)
        if rng.random() < 0.2:
            store.flush()
        if rng.random() < 0.1:
            store.close()
            store = open_store()
        assert list(store.scan(b"", None)) == sorted(model.items())
        assert store.get_many(keys) == [model.get(key) for key in keys]


@pytest.mark.parametrize(
    ("prefix", "following"),
    [
        (b"a", b"b"),
        (b"az", b"a{"),
        (b"a\xff", b"b"),
        (b"a\xff\xff", b"b"),
        (b"\xff", None),
        (b"", None),
        (b"\x00", b"\x01"),
    ],
)
def test_next_prefix(prefix: bytes, following: bytes | None) -> None:
    assert next_prefix(prefix) == following


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_next_prefix_bounds_exactly_the_prefix(prefix: bytes, key: bytes) -> None:
    following = next_prefix(prefix)
    within = key >= prefix and (following is None or key < following)
    assert within == (key.startswith(prefix) if prefix else True)


# -- RocksDB only ------------------------------------------------------------------------------------------


def test_a_crash_of_the_memory_store_loses_what_was_not_flushed() -> None:
    store = MemoryStore()
    put(store, a=b"1")
    store.flush()
    put(store, a=b"2", b=b"2")
    store.crash()
    assert list(store.scan(b"", None)) == [(b"a", b"1")]


WRITER = """
import sys
from pathlib import Path
from changelog_state.store.rocksdb import RocksMemory, RocksStore

memory = RocksMemory(8, 1)  # a write buffer of 1 MB, so that memtables are flushed all the time
store = RocksStore(Path(sys.argv[1]), memory)
filler = bytes(range(256)) * 8
print("ready", flush=True)
number = 0
while True:
    number += 1
    batch = store.batch()
    for part in range(1_000):  # 2 MB: larger than the memtable
        batch.put(b"%d-%d" % (part, number % 3), b"%d " % number + filler)
    batch.delete_range(b"last", b"last\\xff")
    batch.put(b"last", b"%d" % number)
    store.write(batch)
    if number % 5 == 0:
        print(number, flush=True)
"""


@pytest.mark.parametrize("flushes", [2, 5])
def test_a_killed_process_leaves_a_prefix_of_its_writes(flushes: int, tmp_path: Path) -> None:
    """Whole batches, from the first one on, without a gap: so "replay from the stored position" is right."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "db")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(1 + flushes):
        assert process.stdout.readline()
    deadline = time.monotonic() + 30
    while not list((tmp_path / "db").glob("*.sst")):
        assert time.monotonic() < deadline, "nothing was ever written to disk"
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    store = RocksStore(tmp_path / "db", RocksMemory(8, 8))
    found = store.get(b"last")
    assert found is not None
    last = int(found)
    for part in range(1_000):
        for age in range(min(3, last)):
            number = last - age
            value = store.get(b"%d-%d" % (part, number % 3))
            assert value is not None, (part, number)
            assert int(value.split(b" ", 1)[0]) == number, "a batch is there in part, or one before it is missing"
    store.close()


def fill(path: Path) -> Path:
    store = RocksStore(path, RocksMemory(8, 8))
    batch = store.batch()
    rng = random.Random(5)
    for number in range(5_000):
        batch.put(b"k%05d" % number, rng.randbytes(50))
    store.write(batch)
    store.close()
    return max(path.glob("*.sst"), key=lambda file: file.stat().st_size)


def test_damage_is_never_the_end_of_the_data(tmp_path: Path) -> None:
    """RocksDB's iterators end at a damaged block as they end behind the last key."""
    file = fill(tmp_path / "db")
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 32] = bytes(32)
    file.write_bytes(content)
    store = RocksStore(tmp_path / "db", RocksMemory(8, 8))
    assert len(list(store.scan(b"k00000", b"k00100"))) == 100, "elsewhere it can be read"
    with pytest.raises(CorruptStoreError, match=str(tmp_path)):
        list(store.scan(b"k", None))
    with pytest.raises(CorruptStoreError):
        store.get_many([b"k%05d" % number for number in range(5_000)])
    store.close()
    RocksStore(tmp_path / "db", RocksMemory(8, 8)).close()  # nothing holds the lock any more


@pytest.mark.parametrize("damage", ["missing file", "missing manifest", "manifest", "truncated file"])
def test_a_store_that_is_not_whole_says_so_when_opened(damage: str, tmp_path: Path) -> None:
    file = fill(tmp_path / "db")
    [manifest] = (tmp_path / "db").glob("MANIFEST-*")
    if damage == "missing file":
        file.unlink()
    elif damage == "missing manifest":
        manifest.unlink()
    elif damage == "manifest":
        content = bytearray(manifest.read_bytes())
        content[10:20] = bytes(10)
        manifest.write_bytes(content)
    else:
        file.write_bytes(file.read_bytes()[:1000])

    def use() -> None:
        store = RocksStore(tmp_path / "db", RocksMemory(8, 8))
        try:
            list(store.scan(b"k", None))
        finally:
            store.close()

    with pytest.raises(CorruptStoreError):
        use()


def test_a_second_opening_and_an_unusable_path_are_store_errors(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "db", RocksMemory(8, 8))
    with pytest.raises(StoreError, match="lock") as raised:
        RocksStore(tmp_path / "db", RocksMemory(8, 8))
    assert not isinstance(raised.value, CorruptStoreError)
    store.close()
