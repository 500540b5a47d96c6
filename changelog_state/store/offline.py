"""A local store, looked at without touching it, be it in use or not.

RocksDB writes into a directory that it opens, even for reading. So it is given another one: copies of the small
files, links to the data files, which never change once they are there.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from changelog_state.errors import CorruptStoreError
from changelog_state.store.rocksdb import RocksMemory, RocksStore
from changelog_state.store.seal import check_seal
from changelog_state.store.state_store import StateStore

__all__ = ["offline_view"]

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.1
_MEMORY = {"cache_mb": 32, "write_buffers_mb": 8}
_NEEDED = ("CURRENT", "MANIFEST-", "OPTIONS-")


@contextmanager
def offline_view(path: Path) -> Iterator[StateStore | None]:
    """The store of a partition's directory; None if there is none.

    While an agent has it open, this is what it has flushed: older, but whole, with the position that belongs to it.
    """
    database = path / "db"
    if not (database / "CURRENT").exists():
        if database.is_dir() and any(database.glob("*.sst")):
            raise CorruptStoreError(f"local store is damaged: {database} (its file CURRENT is missing)")
        yield None
        return
    check_seal(database)
    with tempfile.TemporaryDirectory(prefix="changelog-state-view-") as temporary:
        state = _opened(database, Path(temporary))
        try:
            yield state
        finally:
            state.store.close()


def _opened(database: Path, temporary: Path) -> StateStore:
    """A compaction may take files away between the look at the manifest and the opening: then look again."""
    for attempt in range(1, _ATTEMPTS + 1):
        view = temporary / str(attempt)
        try:
            _assemble(database, view)
            return _open(view, database)
        except (CorruptStoreError, FileNotFoundError) as error:
            if attempt == _ATTEMPTS:
                told = str(error).replace(str(view), str(database))
                raise CorruptStoreError(
                    told if isinstance(error, CorruptStoreError) else f"local store is damaged: {database} ({told})"
                ) from error
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def _assemble(database: Path, view: Path) -> None:
    """Small files first: a data file that the manifest names was complete before the manifest named it."""
    view.mkdir()
    names = sorted(entry.name for entry in database.iterdir())
    for name in names:
        # With the WAL off a log is empty, unless someone has written here with other tools.
        if name.startswith(_NEEDED) or name.endswith(".log"):
            shutil.copyfile(database / name, view / name)
    for file in database.glob("*.sst"):
        (view / file.name).symlink_to(file.absolute())


def _open(view: Path, database: Path) -> StateStore:
    store = RocksStore(view, RocksMemory(**_MEMORY), read_only=True)
    store.path = database  # what errors should name
    try:
        return StateStore(store)
    except BaseException:
        store.close()
        raise
