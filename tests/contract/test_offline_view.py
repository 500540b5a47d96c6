"""A store looked at from outside: nothing in its directory changes, whoever has it open."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from changelog_state.codec.kinds import DATA
from changelog_state.errors import ChangelogMismatchError, CorruptStoreError
from changelog_state.store import offline
from changelog_state.store.directory import PartitionDirectory
from changelog_state.store.meta import StoreMeta
from changelog_state.store.offline import offline_view
from changelog_state.store.rocksdb import RocksMemory
from changelog_state.store.state_store import StateStore


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateStore]:
    """A store that is open, with one flushed write and one that is not."""
    opened = PartitionDirectory(tmp_path, RocksMemory(8, 8)).open()
    put(opened, 10, a=b"1", b=b"2")
    opened.store.flush()
    put(opened, 20, a=b"later")
    yield opened
    opened.store.close()


def put(state: StateStore, position: int, **values: bytes) -> None:
    state.replay({DATA + name.encode(): value for name, value in values.items()}, StoreMeta("topic", position))


def listing(directory: Path) -> dict[str, tuple[int, int, str]]:
    return {
        str(path.relative_to(directory)): (
            path.stat().st_mtime_ns,
            path.stat().st_ctime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in [directory, *directory.rglob("*")]
    }


def seen(path: Path) -> tuple[int, dict[bytes, bytes]]:
    with offline_view(path) as state:
        assert state is not None
        assert state.meta is not None
        return state.meta.position, dict(state.scan_prefix(DATA))


def test_an_open_store_shows_what_it_has_flushed(state: StateStore, tmp_path: Path) -> None:
    assert seen(tmp_path) == (10, {b"da": b"1", b"db": b"2"})
    state.store.flush()
    assert seen(tmp_path) == (20, {b"da": b"later", b"db": b"2"})


def test_nothing_changes(state: StateStore, tmp_path: Path) -> None:
    before = listing(tmp_path)
    seen(tmp_path)
    assert listing(tmp_path) == before
    state.store.close()
    before = listing(tmp_path)
    assert seen(tmp_path)[0] == 20
    assert listing(tmp_path) == before


def test_the_owner_goes_on_meanwhile(state: StateStore, tmp_path: Path) -> None:
    """Its compactions take files away; the view still has them open."""
    with offline_view(tmp_path) as view:
        assert view is not None
        files = set((tmp_path / "db").glob("*.sst"))
        put(state, 30, a=b"latest", b=b"latest")
        state.store.flush()
        state.store._db.compact_range(None, None)  # type: ignore[attr-defined]
        assert files
        assert not any(file.exists() for file in files)
        assert dict(view.scan_prefix(DATA)) == {b"da": b"1", b"db": b"2"}
    assert seen(tmp_path) == (30, {b"da": b"latest", b"db": b"latest"})


def test_no_store(tmp_path: Path) -> None:
    with offline_view(tmp_path / "missing") as view:
        assert view is None
    assert not (tmp_path / "missing").exists()


def test_a_compaction_between_looking_and_opening(
    state: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that the copied manifest names are gone: another look finds the new ones."""
    state.store.flush()
    assemble, looks = offline._assemble, []

    def assemble_late(database: Path, view: Path) -> None:
        assemble(database, view)
        looks.append(view)
        if len(looks) == 1:
            put(state, 30, a=b"latest")
            state.store.flush()
            state.store._db.compact_range(None, None)  # type: ignore[attr-defined]

    monkeypatch.setattr(offline, "_assemble", assemble_late)
    assert seen(tmp_path) == (30, {b"da": b"latest", b"db": b"2"})
    assert len(looks) == 2


@pytest.mark.parametrize("damage", ["delete an sst", "truncate the manifest", "overwrite an sst", "delete CURRENT"])
def test_a_damaged_store(damage: str, state: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "_PAUSE_SECONDS", 0.0)
    state.store.close()
    database = tmp_path / "db"
    [manifest] = database.glob("MANIFEST-*")
    sst = sorted(database.glob("*.sst"))[-1]
    if damage == "delete an sst":
        sst.unlink()
    elif damage == "truncate the manifest":
        os.truncate(manifest, 10)
    elif damage == "overwrite an sst":
        sst.write_bytes(b"\xff" * sst.stat().st_size)
    else:
        (database / "CURRENT").unlink()
    before = listing(tmp_path)
    with pytest.raises(CorruptStoreError, match=f"damaged: {database}"):
        seen(tmp_path)
    assert listing(tmp_path) == before


def test_a_store_of_a_newer_library(tmp_path: Path) -> None:
    """Even with fields that this one has never heard of."""
    state = PartitionDirectory(tmp_path, RocksMemory(8, 8)).open()
    batch = state.store.batch()
    batch.put(b"pmeta", b'{"format": 99, "shape": "round"}')
    state.store.write(batch)
    state.store.close()
    with pytest.raises(ChangelogMismatchError, match="format 99.*upgrade"):
        seen(tmp_path)
