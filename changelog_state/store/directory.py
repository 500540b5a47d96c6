"""Where stores are on disk, and who may use them.

::

    <state_dir>/agent.lock, agent.json                  one agent per state directory
    <state_dir>/stores/<application>/<store>/<p>/db     one RocksDB per partition
    <state_dir>/stores/<application>/<store>/<p>/corrupt-<time>
    <state_dir>/stores/<application>/<store>/<p>/db.position  how far it is, more or less
    <state_dir>/stores/<application>/<store>/<p>/bulk   files of a restore under way
    <state_dir>/tables/<application>/<table>/<p>/db     one RocksDB per partition of a global table
    <state_dir>/spill/                                  staged work beyond the memory budget
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import time
from pathlib import Path
from typing import IO

from changelog_state.errors import StateDirectoryError, StoreError
from changelog_state.store.rocksdb import RocksMemory, RocksStore
from changelog_state.store.state_store import StateStore

__all__ = [
    "PartitionDirectory",
    "StateDirectory",
    "is_held",
    "local_partitions",
    "partition_path",
    "size_of",
    "store_path",
]


logger = logging.getLogger(__name__)


def store_path(state_dir: Path, application: str, store: str) -> Path:
    return state_dir / "stores" / application / store


def partition_path(state_dir: Path, application: str, store: str, partition: int) -> Path:
    return store_path(state_dir, application, store) / str(partition)


def local_partitions(state_dir: Path, application: str, store: str) -> list[int]:
    """Partitions of which there is anything in this directory, be it damaged or moved aside."""
    path = store_path(state_dir, application, store)
    return sorted(int(entry.name) for entry in path.iterdir() if entry.name.isdecimal()) if path.is_dir() else []


def size_of(directory: Path) -> tuple[int, int]:
    """Bytes and number of files. An agent that is running may take files away meanwhile."""
    sizes = []
    if directory.is_dir():
        for entry in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                sizes.append(entry.stat().st_size)
    return sum(sizes), len(sizes)


class PartitionDirectory:
    def __init__(self, path: Path, memory: RocksMemory) -> None:
        self.path = path
        self._memory = memory

    def open(self) -> StateStore:
        store = RocksStore(self.path / "db", self._memory)
        try:
            return StateStore(store)
        except BaseException:
            with contextlib.suppress(StoreError):
                store.close()
            raise

    @property
    def bulk_path(self) -> Path:
        """Where the files of a restore under way are put together."""
        return self.path / "bulk"

    def note_position(self, position: int) -> None:
        """How far the store is, for whoever wants to know without opening it. A hint: it may be out of date."""
        try:
            self._position_path.write_text(str(position))
        except OSError as error:
            logger.info("%s: %s", self._position_path, error)

    def noted_position(self) -> int | None:
        """None if there is no store."""
        if not self.exists():
            return None
        try:
            return int(self._position_path.read_text())
        except (OSError, ValueError):
            return 0

    @property
    def _position_path(self) -> Path:
        return self.path / "db.position"

    def exists(self) -> bool:
        return (self.path / "db" / "CURRENT").exists()

    def wipe(self) -> None:
        shutil.rmtree(self.path / "db", ignore_errors=True)

    def move_aside(self, why: str) -> Path:
        target = self.path / f"{why}-{time.strftime('%Y%m%dT%H%M%S')}"
        number = 1
        while target.exists():
            number += 1
            target = target.with_name(f"{target.name.split('.')[0]}.{number}")
        (self.path / "db").rename(target)
        return target


def _lock(file: IO[str]) -> None:
    """Once more after a moment: whoever only looks (``is_held``) has it for an instant."""
    for last in (False, False, True):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if last:
                raise
            time.sleep(0.05)


def is_held(path: Path) -> bool:
    """Whether a process has this state directory. Looks only."""
    try:
        with open(path / "agent.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # there is no such directory, or it was never used
    return False


class StateDirectory:
    """A state directory held by this process. Closing it lets another agent have it."""

    def __init__(self, path: Path, memory: RocksMemory | None = None) -> None:
        self.path = path.absolute()
        self.memory = memory or RocksMemory()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock: IO[str] = open(self.path / "agent.lock", "a+")  # noqa: SIM115 (held for life)
        except OSError as error:
            raise StateDirectoryError(
                f"state directory is not usable: {self.path} ({error.strerror}); "
                "give another state_dir, or make it writable for this user"
            ) from error
        try:
            _lock(self._lock)
        except OSError as error:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise StateDirectoryError(
                f"state directory is used by another agent: {self.path} (process {holder}); "
                f"stop that process first (kill {holder}), or use another state_dir"
            ) from error
        self._lock.seek(0)
        self._lock.truncate()
        self._lock.write(str(os.getpid()))
        self._lock.flush()
        shutil.rmtree(self.spill_dir, ignore_errors=True)

    @property
    def spill_dir(self) -> Path:
        return self.path / "spill"

    def partition(self, application: str, store: str, partition: int) -> PartitionDirectory:
        return PartitionDirectory(partition_path(self.path, application, store, partition), self.memory)

    def table_partition(self, application: str, table: str, partition: int) -> PartitionDirectory:
        """Apart from all stores: a table may follow a store of which this agent owns partitions."""
        return PartitionDirectory(self.path / "tables" / application / table / str(partition), self.memory)

    def close(self) -> None:
        self._lock.close()
