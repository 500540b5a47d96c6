"""A partition's state over every store: what a batch replaces is kept until the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from changelog_state.codec.digest import EMPTY_DIGEST, PairDigest
from changelog_state.codec.kinds import CLAIM, DATA, IMAGE, MARKER, SCHEMA, TIMER
from changelog_state.errors import CorruptStoreError
from changelog_state.faults import InjectedFaultError, arm
from changelog_state.store.base import Store
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.images import pack_images
from changelog_state.store.memory import MemoryStore
from changelog_state.store.meta import StoreMeta
from changelog_state.store.rocksdb import RocksMemory, RocksStore
from changelog_state.store.state_store import Chunk, StateStore

Open = Callable[[], StateStore]
Changes = dict[bytes, bytes | None]


@pytest.fixture(params=["memory", "rocksdb"])
def open_state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    opened: list[Store] = []
    kept = MemoryStore()

    def open_one() -> StateStore:
        for store in opened:
            store.close()
        opened.append(kept if request.param == "memory" else RocksStore(tmp_path / "db", RocksMemory(8, 8)))
        return StateStore(opened[-1])

    yield open_one
    opened[-1].close()


@pytest.fixture
def state(open_state: Open) -> StateStore:
    return open_state()


def first_as_it_is_then_reopened(state: StateStore, open_state: Open) -> Iterator[StateStore]:
    yield state
    yield open_state()


def meta_at(position: int, begin: int | None, complete: bool = True) -> StoreMeta:
    return StoreMeta("topic", position, position - 1, begin, complete, 1_000)


def chunked(state: StateStore, changes: Changes, size: int) -> list[Chunk]:
    items = iter(sorted(changes.items()))
    chunks: list[Chunk] = []
    while part := list(islice(items, size)):
        keys = [key for key, _ in part]
        chunks.append(Chunk(keys, [value for _, value in part], pack_images(keys, state.read(keys))))
    return chunks


def commit(state: StateStore, changes: Changes, begin: int, marker: bytes = b"marker", size: int = 100) -> None:
    state.commit(chunked(state, changes, size), marker, meta_at(begin + len(changes) + 1, begin))


FIRST: Changes = {b"da": b"1", b"db": b"2", b"dc": b"3", b"dgone": b"4"}
SECOND: Changes = {b"da": b"10", b"db": b"", b"dgone": None, b"dnew": b"5", b"dnever": None}
KEYS = sorted({*FIRST, *SECOND})


def test_an_empty_store_knows_nothing(state: StateStore) -> None:
    assert (state.meta, state.marker) == (None, None)
    assert state.read([b"da"]) == state.read_before([b"da"]) == [None]
    assert list(state.scan_prefix(DATA)) == list(state.scan_prefix(DATA, before=True)) == []


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_commit_keeps_what_it_replaced(size: int, open_state: Open) -> None:
    state = open_state()
    commit(state, FIRST, 10, b"first", size)
    assert state.read_before(KEYS) == [None] * len(KEYS), "an absent value is remembered as absent"
    commit(state, SECOND, 20, b"second", size)
    for opened in first_as_it_is_then_reopened(state, open_state):
        assert opened.marker == b"second"
        assert opened.meta == meta_at(20 + len(SECOND) + 1, 20)
        assert opened.read(KEYS) == [SECOND.get(key, FIRST.get(key)) for key in KEYS]
        assert opened.read_before(KEYS) == [FIRST.get(key) for key in KEYS]
        assert dict(opened.scan_prefix(DATA, before=True)) == FIRST
        now = {key: value for key, value in (FIRST | SECOND).items() if value is not None}
        assert dict(opened.scan_prefix(DATA)) == now
        assert list(opened.scan_prefix(DATA)) == sorted(now.items())
        assert list(opened.scan_prefix(DATA, before=True)) == sorted(FIRST.items())


def test_scan_prefix_stays_within_it(state: StateStore) -> None:
    commit(state, {b"dk\x00a": b"1", b"dk\x00b": b"2", b"dk\x01": b"3", b"dl": b"4"}, 10)
    commit(state, {b"dk\x00b": None, b"dk\x00c": b"5", b"dk\x01": None}, 20)
    assert list(state.scan_prefix(b"dk\x00")) == [(b"dk\x00a", b"1"), (b"dk\x00c", b"5")]
    assert list(state.scan_prefix(b"dk\x00", before=True)) == [(b"dk\x00a", b"1"), (b"dk\x00b", b"2")]


def test_only_the_last_batch_s_images_are_kept(state: StateStore) -> None:
    commit(state, FIRST, 10)
    commit(state, SECOND, 20)
    commit(state, {b"da": b"100"}, 30)
    assert state.read_before([b"da", b"dgone", b"dnew"]) == [b"10", None, b"5"]
    images = list(state.store.scan(IMAGE, bytes([IMAGE[0] + 1])))
    assert len(images) == 1


def test_images_of_batches_whose_begins_differ_in_length(state: StateStore) -> None:
    """Begins are compared as numbers: 9, 10, 256 and 2**40 in this order."""
    for begin in (9, 10, 256, 2**40):
        before = state.read([b"da"])
        commit(state, {b"da": b"%d" % begin}, begin)
        assert state.read_before([b"da"]) == before
        assert len(list(state.store.scan(IMAGE, bytes([IMAGE[0] + 1])))) == 1


def test_replaying_the_log_gives_what_committing_gave(open_state: Open, tmp_path: Path) -> None:
    """The same data, the same reads before the last batch, the same digest, however the log is cut."""
    committed = StateStore(MemoryStore())
    commit(committed, FIRST, 10, b"first")
    digest = PairDigest()
    keys = sorted(SECOND)
    digest.update(keys, committed.read(keys))
    commit(committed, SECOND, 20, b"second", size=2)
    assert committed.images_digest(20) == digest.digest()

    replayed = open_state()
    log: Changes = {SCHEMA + b"1": b"schema", CLAIM: b"claim", **FIRST, MARKER: b"first"}
    replayed.replay(log, meta_at(20, None, complete=False))
    last = [*sorted(SECOND.items()), (MARKER, b"second"), (CLAIM, b"later")]
    for start in range(0, len(last), 2):
        stretch = dict(last[start : start + 2])
        replayed.replay(stretch, meta_at(20 + start + 2, 20, complete=False), images_begin=20)
        replayed = open_state() if start == 2 else replayed
    assert replayed.images_digest(20) == digest.digest()
    assert replayed.marker == b"second"
    assert replayed.read(KEYS) == committed.read(KEYS)
    assert replayed.read_before(KEYS) == committed.read_before(KEYS)
    assert list(replayed.scan_prefix(DATA, before=True)) == list(committed.scan_prefix(DATA, before=True))
    assert replayed.store.get(CLAIM) == b"later", "what is no state has no image, only its last value"


def test_the_first_image_stays(state: StateStore) -> None:
    """A crash may leave data that is newer than the position: replaying it again must not image the new value."""
    commit(state, FIRST, 10)
    before = state.meta
    assert before is not None
    chunks = chunked(state, SECOND, 2)

    def cut() -> Iterator[Chunk]:
        yield chunks[0]
        yield chunks[1]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        state.commit(cut(), b"second", meta_at(30, 20))
    again = StateStore(state.store)
    assert (again.meta, again.marker) == (before, b"marker"), "position and marker come last"
    assert again.read([b"da"]) == [b"10"], "the first part was written"
    assert again.read([b"dnew"]) == [None]
    again.replay({**SECOND, MARKER: b"second"}, meta_at(30, 20, complete=False), images_begin=20)
    assert again.read_before(KEYS) == [FIRST.get(key) for key in KEYS]
    digest = PairDigest()
    digest.update(sorted(SECOND), [FIRST.get(key) for key in sorted(SECOND)])
    assert again.images_digest(20) == digest.digest()


def test_images_stay_as_long_as_their_marker(state: StateStore) -> None:
    """A commit that is cut short leaves the marker before it: that one's images must be whole still."""
    commit(state, FIRST, 10)
    whole = state.images_digest(10)
    chunks = chunked(state, SECOND, 2)

    def cut() -> Iterator[Chunk]:
        yield from chunks[:2]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        state.commit(cut(), b"second", meta_at(30, 20))
    again = StateStore(state.store)
    assert again.marker == b"marker"
    assert again.images_digest(10) == whole != EMPTY_DIGEST


def test_a_crash_between_chunks_of_a_commit(tmp_path: Path, faults: Path) -> None:
    """The named place between two parts: data and image of a key are in the same one."""
    state = StateStore(MemoryStore())
    commit(state, FIRST, 10)
    arm(faults, "store.between_chunks", "raise 2")
    with pytest.raises(InjectedFaultError):
        commit(state, SECOND, 20, b"second", size=1)
    found = [key for key in sorted(SECOND) if StateStore(state.store).read([key]) != [FIRST.get(key)]]
    assert found == [b"da", b"db"], "a prefix of the keys"
    images = list(state.store.scan(IMAGE + (20).to_bytes(8, "big"), bytes([IMAGE[0] + 1])))
    assert [key[9:] for key, _ in images] == [b"da", b"db"], "a chunk's image is named by its first key"
    assert state.marker == b"marker"


def test_timers_have_images_too(state: StateStore) -> None:
    state.replay({TIMER + b"t": b"1", DATA + b"a": b"1"}, meta_at(10, None))
    state.replay({TIMER + b"t": None, DATA + b"a": b"2", MARKER: b"m"}, meta_at(20, 10), images_begin=10)
    assert state.read_before([TIMER + b"t", DATA + b"a"]) == [b"1", b"1"]


def test_clear_forgets_state_and_marker_but_not_the_position(open_state: Open) -> None:
    state = open_state()
    commit(state, FIRST, 10)
    commit(state, SECOND, 20)
    state.replay({SCHEMA + b"1": b"schema", CLAIM: b"claim", TIMER + b"t": b"1"}, replace(state.meta, position=40))  # type: ignore[type-var]
    state.clear(StoreMeta("topic", 50))
    for opened in first_as_it_is_then_reopened(state, open_state):
        assert opened.marker is None
        assert opened.meta == StoreMeta("topic", 50)
        assert list(opened.scan_prefix(DATA)) == list(opened.scan_prefix(TIMER)) == []
        assert list(opened.scan_prefix(IMAGE)) == []
        assert opened.read_before(KEYS) == [None] * len(KEYS)
        assert opened.store.get(SCHEMA + b"1") == b"schema"
    commit(state := open_state(), {b"da": b"1"}, 60)
    assert state.read_before([b"da"]) == [None]


def test_a_tombstone_of_the_marker_is_no_marker(open_state: Open) -> None:
    state = open_state()
    commit(state, FIRST, 10)
    state.replay({**dict.fromkeys(FIRST), MARKER: None}, meta_at(30, None, complete=False))
    assert state.marker is None
    assert state.read_before([b"da"]) == [None], "no images to look at"
    assert open_state().marker is None


def test_update_meta_changes_only_what_is_named(open_state: Open) -> None:
    state = open_state()
    commit(state, FIRST, 10)
    before = state.meta
    assert before is not None
    state.update_meta(position=99)
    assert state.meta == replace(before, position=99)
    assert open_state().meta == replace(before, position=99)


def test_images_digest_of_nothing(state: StateStore) -> None:
    assert state.images_digest(7) == EMPTY_DIGEST
    commit(state, FIRST, 10)
    assert state.images_digest(7) == EMPTY_DIGEST
    assert state.images_digest(10) != EMPTY_DIGEST


def test_images_in_several_chunks(state: StateStore) -> None:
    changes: Changes = {b"d%06d" % number: b"x" for number in range(12_000)}
    commit(state, {b"d000000": b"0", b"d004999": b"1", b"d011999": b"2"}, 5)
    before = [b"0", b"1", None, b"2", None, None]
    asked = [b"d000000", b"d004999", b"d005000", b"d011999", b"d012000", b"a"]
    commit(state, changes, 10, size=5_000)
    assert state.read_before(asked) == before
    assert state.read_before(asked[::-1]) == before[::-1], "in whatever order they are asked for"
    assert dict(state.scan_prefix(b"d0049", before=True)) == {b"d004999": b"1"}
    changes = dict.fromkeys(changes, b"y")
    commit(state, changes, 20, size=5_000)
    assert dict(state.scan_prefix(b"d00499", before=True)) == {b"d00499%d" % n: b"x" for n in range(10)}
    commit(state, {b"e": b"1"}, 25)
    commit(state, dict.fromkeys(changes, None), 30, size=7)
    assert dict(state.scan_prefix(b"d00499", before=True)) == {b"d00499%d" % n: b"y" for n in range(10)}


def test_images_digest_over_several_chunks(state: StateStore) -> None:
    changes: Changes = {b"d%06d" % number: b"x" for number in range(12_000)}
    commit(state, changes, 10, size=5_000)
    digest = PairDigest()
    digest.update(sorted(changes), [None] * len(changes))
    assert state.images_digest(10) == digest.digest()


def test_meta_survives_its_encoding() -> None:
    meta = StoreMeta("id", 5, None, 3, True, 7)
    assert StoreMeta.decode(meta.encode()) == meta


def test_a_store_whose_own_meta_is_damaged_can_be_replaced_at_once(tmp_path: Path) -> None:
    """The opening fails half-way; what it had opened must not stay locked, though the error is still at hand."""
    directory = PartitionDirectory(tmp_path, RocksMemory(8, 8))
    state = directory.open()
    commit(state, FIRST, 10)
    state.store.close()
    [file] = (tmp_path / "db").glob("*.sst")
    content = bytearray(file.read_bytes())
    content[:64] = bytes(64)
    file.write_bytes(content)
    with pytest.raises(CorruptStoreError) as raised:
        directory.open()
    moved = directory.move_aside("corrupt")
    fresh = directory.open()
    assert fresh.meta is None
    fresh.store.close()
    assert moved.name.startswith("corrupt-")
    assert raised.value.__traceback__ is not None
    assert directory.move_aside("corrupt") != moved, "a second one in the same second has a name of its own"
