"""How a long stretch is shared out, and what its workers may take."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from restore.bulk import BULK_OFFSETS, split
from restore.bulk_pool import BulkPool, stretches_per_store


@given(st.integers(0, 10**12), st.integers(1, 10**8), st.integers(1, 64))
def test_stretches_are_in_order_and_leave_nothing_out(start: int, offsets: int, processes: int) -> None:
    found = split(start, start + offsets, processes)
    assert found[0][0] == start
    assert found[-1][1] == start + offsets
    assert all(first[1] == second[0] for first, second in pairwise(found))
    lengths = [end - begin for begin, end in found]
    assert max(lengths) - min(lengths) <= 1
    assert len(found) == 1 or min(lengths) >= BULK_OFFSETS - 1


def test_all_processes_help_with_one_partition() -> None:
    assert len(split(0, 2_000_000, 2)) == 2
    assert len(split(0, 2_000_000, 8)) == 8
    assert len(split(0, BULK_OFFSETS, 8)) == 1, "starting a reader for little costs more than it gives"
    assert len(split(0, 20_000_000, 2)) == 10, "a killed restore reads no more than a stretch again"


def test_workers_share_the_memory() -> None:
    for memory_mb, processes, size in ((512, 16, 4), (512, 2, 2), (64, 8, 1), (4096, 8, 8)):
        pool = BulkPool(memory_mb, processes)
        assert pool.size == size
        assert pool.size * pool.worker_bytes <= memory_mb * 1024 * 1024
        pool.allow(128)
        assert (pool.size, pool.worker_bytes) == (1, 128 * 1024 * 1024)


@given(st.integers(1, 40), st.integers(1, 16))
def test_workers_have_something_to_do(stores: int, workers: int) -> None:
    each = stretches_per_store(stores, workers)
    assert each >= 1
    jobs = stores * each
    assert jobs >= workers
    rounds = -(-jobs // workers)
    assert rounds * workers <= 1.5 * jobs, "at the end few of them wait for the others"
