"""Staged work: in memory up to a budget, then on disk, always in order and whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from changelog_state.agent.messages import REQUEST_SCHEMA
from changelog_state.agent.staging import StagedWork, StagingBudget
from changelog_state.codec.digest import PairDigest
from changelog_state.errors import InvalidInputError
from changelog_state.store.images import pack_images


def batch(*keys: bytes) -> pa.RecordBatch:
    values = [None if key.endswith(b"x") else key * 10 for key in keys]
    return pa.record_batch([pa.array(c, pa.binary()) for c in (keys, values, keys)], schema=REQUEST_SCHEMA)


def keys_of(work: StagedWork) -> list[bytes]:
    return [key for chunk in work.chunks() for key in chunk.keys]


@pytest.mark.parametrize("limit", [0, 100, 10_000])
def test_wherever_it_is_it_is_the_same(limit: int, tmp_path: Path) -> None:
    budget = StagingBudget(limit, tmp_path / "spill")
    work = StagedWork(budget)
    for keys in ([b"a", b"bx"], [b"c", b"d"], [b"ex", b"f"]):
        work.append(batch(*keys))
    work.seal(frozenset({"n"}))
    for _ in range(2):
        chunks = list(work.chunks())
        assert keys_of(work) == sorted(keys_of(work))
        assert len(keys_of(work)) == work.records
    expected, images = PairDigest(), PairDigest()
    for chunk in chunks:
        expected.update(chunk.keys, chunk.values)
        images.update(chunk.keys, chunk.keys)
        assert chunk.images == pack_images(chunk.keys, chunk.keys), "the previous values of this test"
    assert (work.digest(), work.images_digest()) == (expected.digest(), images.digest())
    assert work.spilled == (limit < 10_000)
    assert budget.used_bytes <= limit
    work.discard()
    work.discard()
    assert budget.used_bytes == 0
    assert list(tmp_path.rglob("staged-*")) == []


def test_work_that_was_spilled_stays_in_order_when_memory_is_free_again(tmp_path: Path) -> None:
    budget = StagingBudget(1_000, tmp_path)
    assert budget.reserve(1_000)
    work = StagedWork(budget)
    work.append(batch(b"a"))
    assert work.spilled
    budget.give_back(1_000)
    work.append(batch(b"b"))
    work.append(batch(b"c"))
    work.seal(frozenset())
    assert keys_of(work) == [b"a", b"b", b"c"]
    assert budget.used_bytes == 0


def test_unsealed_work_is_removed_from_disk(tmp_path: Path) -> None:
    work = StagedWork(StagingBudget(0, tmp_path))
    work.append(batch(b"a"))
    work.discard()
    assert list(tmp_path.iterdir()) == []


def test_what_is_refused(tmp_path: Path) -> None:
    work = StagedWork(StagingBudget(10_000, tmp_path))
    work.append(batch(b"b"))
    with pytest.raises(InvalidInputError, match="ascending"):
        work.append(batch(b"a"))
    sealed = StagedWork(StagingBudget(10_000, tmp_path))
    sealed.seal(frozenset())
    with pytest.raises(InvalidInputError, match="seal"):
        sealed.append(batch(b"a"))
    assert sealed.records == 0
