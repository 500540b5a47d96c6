"""Which differences decide nothing."""

from __future__ import annotations

import pytest

from changelog_state.codec.kinds import DATA
from changelog_state.store.memory import MemoryStore
from restore.comparison import Difference
from restore.plan import Need
from restore.verify import _may_be_due

EXTRA = Difference(DATA + b"a", b"1", None)
CHANGED = Difference(DATA + b"a", b"1", b"2")
MISSING = Difference(DATA + b"a", None, b"2")


def keys(*names: bytes) -> MemoryStore:
    store = MemoryStore()
    batch = store.batch()
    for name in names:
        batch.put(DATA + name, b"")
    store.write(batch)
    return store


@pytest.mark.parametrize("found", [EXTRA, CHANGED, MISSING])
def test_a_key_that_the_log_goes_on_with(found: Difference) -> None:
    assert _may_be_due(found, keys(b"a", b"b"), Need.BEHIND)
    assert not _may_be_due(found, keys(b"b", b"aa"), Need.BEHIND)


def test_a_stale_store_may_hold_keys_whose_deletion_has_left_the_log() -> None:
    assert _may_be_due(EXTRA, keys(), Need.STALE)
    assert not _may_be_due(CHANGED, keys(), Need.STALE)
    assert not _may_be_due(MISSING, keys(), Need.STALE)
