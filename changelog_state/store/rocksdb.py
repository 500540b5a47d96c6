"""RocksDB behind the store contract: one column family, no WAL (the changelog is the WAL).

NOTE: without a WAL a killed process leaves a *prefix* of its writes: memtables are flushed oldest first and a
write batch never spans two of them. That is what makes "replay from the stored position" correct.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from changelog_state.errors import CorruptStoreError, StoreError
from changelog_state.store.base import Batch
from changelog_state.store.seal import break_seal, check_seal, write_seal

__all__ = ["RocksMemory", "RocksStore"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
_BLOOM_BITS = 10
_BLOCK_BYTES = 4 * 1024
_MEBIBYTE = 1024 * 1024
_L0_FILES = 4
_L0_FILES_LOADING = 32
_L0_FILES_SLOW = 64
_L0_FILES_STOP = 128
"""A restore leaves many files, and the first batches behind it need not wait until they are merged."""


@dataclass
class RocksMemory:
    """Block cache and write buffers, shared by all partitions of a process."""

    cache_mb: int = 256
    write_buffers_mb: int = 256
    cache: Cache = field(init=False)
    write_buffers: WriteBufferManager = field(init=False)

    def __post_init__(self) -> None:
        self.cache = Cache(self.cache_mb * _MEBIBYTE)
        self.write_buffers = WriteBufferManager(self.write_buffers_mb * _MEBIBYTE, False)

    def options(self) -> Options:
        table = BlockBasedOptions()
        table.set_bloom_filter(_BLOOM_BITS, False)
        table.set_block_cache(self.cache)
        table.set_block_size(_BLOCK_BYTES)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_manager(self.write_buffers)
        options.set_write_buffer_size(64 * _MEBIBYTE)
        options.set_level_zero_file_num_compaction_trigger(_L0_FILES)
        options.set_level_zero_slowdown_writes_trigger(_L0_FILES_SLOW)
        options.set_level_zero_stop_writes_trigger(_L0_FILES_STOP)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_open_files(512)
        return options


class RocksStore:
    """One partition's database. Every failure becomes a StoreError; damage a CorruptStoreError."""

    def __init__(self, path: Path, memory: RocksMemory | None = None, *, read_only: bool = False) -> None:
        self.path = path
        self._read_only = read_only
        options = (memory or RocksMemory()).options()
        access = AccessType.read_write()
        if read_only:
            # All files are opened at once and held, so that the view stays whole while their owner deletes some.
            options.set_max_open_files(-1)
            access = AccessType.read_only()
        path.mkdir(parents=True, exist_ok=True)
        if not read_only:
            try:
                check_seal(path)
            finally:
                break_seal(path)
        try:
            # IMPORTANT: without column_families= a reopened database ignores the table options.
            self._db: Any = Rdict(str(path), options, column_families={"default": options}, access_type=access)
        except Exception as error:
            raise _translated(error, path, "open") from error
        self._closed = False
        self._no_wal = WriteOptions()
        self._no_wal.disable_wal = True

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._db.get(key)  # type: ignore[no-any-return]
        except Exception as error:
            raise _translated(error, self.path, "read") from error

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        try:
            return self._db.get(keys)  # type: ignore[no-any-return]
        except Exception as error:
            raise _translated(error, self.path, "read") from error

    def scan(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return self._each(start, end, lambda entries, key: (key, entries.value()))

    def scan_keys(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        return self._each(start, end, lambda entries, key: key)

    def _each(self, start: bytes, end: bytes | None, pick: Callable[[RdictIter, bytes], T]) -> Iterator[T]:
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        try:
            entries = self._db.iter(options)
            entries.seek(start)
        except Exception as error:
            raise _translated(error, self.path, "scan") from error
        return self._picked(entries, options, pick)

    def _picked(self, entries: RdictIter, options: ReadOptions, pick: Callable[[RdictIter, bytes], T]) -> Iterator[T]:
        """IMPORTANT: damage ends an iteration like the end of the data does; only the status tells them apart.

        The options are held here because they own the bound's bytes, which the iterator only points to: without
        them it runs on beyond the bound, or stops before it.
        """
        try:
            while (key := entries.key()) is not None:
                yield pick(entries, key)
                entries.next()
            entries.status()
        except Exception as error:
            raise _translated(error, self.path, "scan") from error
        finally:
            del entries  # the database stays locked while an iterator lives, be it in a traceback

    def batch(self) -> Batch:
        return WriteBatch(raw_mode=True)  # type: ignore[no-any-return]

    def write(self, batch: Batch) -> None:
        try:
            self._db.write(batch, self._no_wal)
        except Exception as error:
            raise _translated(error, self.path, "write") from error

    def ingest(self, file: Path) -> None:
        """Take over a sorted file: all of it at once, durable when this returns, newer than all that is here."""
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        try:
            self._db.ingest_external_file([str(file)], options)
        except Exception as error:
            raise _translated(error, self.path, "ingest") from error

    def expect_many_files(self, expected: bool) -> None:
        """While files are being ingested, do not merge them after every fourth."""
        if self._closed:
            return
        trigger = _L0_FILES_LOADING if expected else _L0_FILES
        try:
            self._db.set_options({"level0_file_num_compaction_trigger": str(trigger)})
        except Exception as error:  # a matter of speed only, and whatever is wrong shows in the next write
            logger.warning("%s: files are merged as before: %s", self.path, error)

    def flush(self) -> None:
        try:
            self._db.flush()
        except Exception as error:
            raise _translated(error, self.path, "flush") from error

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if not self._read_only:
                self._db.flush()
            self._db.close()
        except Exception as error:
            # NOTE: closing flushes too, and stays open if it cannot. What was not flushed is in the changelog.
            self._db = None
            raise _translated(error, self.path, "close") from error
        if not self._read_only:
            try:
                write_seal(self.path)
            except OSError as error:
                logger.warning("%s is closed, but not sealed: %s", self.path, error)

    def size_bytes(self) -> int:
        """Roughly what the store holds on disk and in write buffers."""
        live = self._db.property_int_value("rocksdb.live-sst-files-size") or 0
        buffered = self._db.property_int_value("rocksdb.cur-size-all-mem-tables") or 0
        return int(live) + int(buffered)


def _translated(error: Exception, path: Path, doing: str) -> StoreError:
    text = str(error)
    incomplete = doing == "open" and "No such file" in text
    if "Corruption" in text or "checksum mismatch" in text or incomplete:
        return CorruptStoreError(f"local store is damaged: {path} ({doing}: {text})")
    return StoreError(f"local store failed: {path} ({doing}: {text}); check the disk's space and permissions")
