"""Staged work: in memory up to a budget, then on disk, always in order and whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from changelog_state.agent.messages import REQUEST_SCHEMA
from changelog_state.agent.staging import StagedWork, StagingBudget
from changelog_state.codec.digest import PairDigest
from changelog_state.codec.headers import pack_headers
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


def outputs(*keys: bytes | None) -> pa.RecordBatch:
    headers = [pack_headers([("h", b"1")]) if key == b"with" else None for key in keys]
    return pa.record_batch([pa.array(c, pa.binary()) for c in (keys, keys, headers)], schema=REQUEST_SCHEMA)


@pytest.mark.parametrize("limit", [0, 100, 10_000])
def test_records_for_a_topic_are_kept_like_changes(limit: int, tmp_path: Path) -> None:
    budget = StagingBudget(limit, tmp_path / "spill")
    work, alone = StagedWork(budget), StagedWork(StagingBudget(10_000, tmp_path))
    for staged in (work, alone):
        staged.append(batch(b"a", b"bx"))
    for keys in ([b"z", None], [b"a"], [b"with", b"without"]):
        work.append_outputs("out", outputs(*keys))
    for staged in (work, alone):
        staged.seal(frozenset())
    assert budget.used_bytes <= limit
    assert len(list(tmp_path.rglob("staged-*"))) == (2 if limit == 0 else 1 if limit == 100 else 0)
    for _ in range(2):
        found = work.records_for_topic()
        assert found is not None
        assert found.topic == "out"
        chunks = list(found.chunks)
        assert [key for chunk in chunks for key in chunk.keys] == [b"z", None, b"a", b"with", b"without"]
        assert [chunk.headers for chunk in chunks] == [None, None, [[("h", b"1")], None]]
    assert (work.records, work.outputs) == (2, 5)
    assert (alone.outputs, alone.records_for_topic()) == (0, None)
    assert keys_of(work) == keys_of(alone)
    assert work.digest() != alone.digest(), "what goes to a topic counts"
    assert work.images_digest() == alone.images_digest()
    work.discard()
    assert budget.used_bytes == 0
    assert list(tmp_path.rglob("staged-*")) == []


def test_the_digest_is_of_all_records_for_a_topic_in_their_order(tmp_path: Path) -> None:
    def digest(*chunks: pa.RecordBatch) -> bytes:
        work = StagedWork(StagingBudget(10_000, tmp_path))
        for chunk in chunks:
            work.append_outputs("out", chunk)
        return work.digest()

    assert digest(outputs(b"a", b"b")) == digest(outputs(b"a"), outputs(b"b"))
    assert digest(outputs(b"a", b"b")) != digest(outputs(b"b", b"a"))
    assert digest(outputs(b"with")) != digest(outputs(b"with").set_column(2, "previous", pa.nulls(1, pa.binary())))
    assert digest(outputs()) == digest() == PairDigest().digest(), "as ever, where there are none"


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
    with pytest.raises(InvalidInputError, match="seal"):
        sealed.append_outputs("out", outputs(b"a"))
    assert (sealed.records, sealed.outputs) == (0, 0)
    work.append_outputs("out", outputs(b"a"))
    with pytest.raises(InvalidInputError, match="topics out and other"):
        work.append_outputs("other", outputs(b"a"))
