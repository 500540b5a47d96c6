"""Whether a local store can go on from where it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changelog_state.config import FORMAT_VERSION
from changelog_state.errors import ChangelogMismatchError
from changelog_state.store.meta import StoreMeta
from restore.plan import LogBounds, Need, PartitionPlan, plan_partition

NOW = 1_000_000_000
DAY = 86_400_000
LOG = LogBounds("topic", low=10, high=100, delete_retention_ms=DAY)
META = StoreMeta("topic", position=50, caught_up_ms=NOW - 1_000)


@pytest.mark.parametrize(
    ("meta", "need", "start"),
    [
        (None, Need.EVERYTHING, 10),
        (replace(META, topic_id="other"), Need.OTHER_TOPIC, 10),
        (replace(META, position=9), Need.OUTSIDE_LOG, 10),
        (replace(META, position=101), Need.OUTSIDE_LOG, 10),
        (replace(META, position=10), Need.BEHIND, 10),
        (META, Need.BEHIND, 50),
        (replace(META, position=100), Need.NOTHING, 100),
        (replace(META, caught_up_ms=NOW - DAY // 2), Need.BEHIND, 50),
        (replace(META, caught_up_ms=NOW - DAY // 2 - 1), Need.STALE, 10),
        (replace(META, position=100, caught_up_ms=0), Need.NOTHING, 100),
    ],
)
def test_plan(meta: StoreMeta | None, need: Need, start: int) -> None:
    assert plan_partition(meta, LOG, NOW) == PartitionPlan(need, start, 100)


@pytest.mark.parametrize("meta", [None, META, replace(META, topic_id="other")])
def test_a_damaged_store_is_rebuilt_whatever_it_says(meta: StoreMeta | None) -> None:
    assert plan_partition(meta, LOG, NOW, damaged=True) == PartitionPlan(Need.CORRUPT, 10, 100)


def test_a_foreign_marker_matters_only_where_the_store_would_be_used() -> None:
    assert plan_partition(META, LOG, NOW, foreign=True) == PartitionPlan(Need.FOREIGN, 10, 100)
    recreated = replace(META, topic_id="other")
    assert plan_partition(recreated, LOG, NOW, foreign=True).need is Need.OTHER_TOPIC


def test_reasons_have_a_short_form_each() -> None:
    words = [need.word for need in Need]
    assert len(set(words)) == len(words)
    assert {"no local store", "behind", "stale", "corrupt", "up to date"} < set(words)
    assert {"recreated changelog", "outside log", "foreign marker"} < set(words)


def test_from_scratch() -> None:
    assert {need for need in Need if not need.from_scratch} == {Need.BEHIND, Need.NOTHING}


def test_offsets() -> None:
    assert PartitionPlan(Need.BEHIND, 50, 100).offsets == 50
    assert PartitionPlan(Need.NOTHING, 100, 100).offsets == 0


def test_a_store_of_a_newer_library_is_not_touched() -> None:
    with pytest.raises(ChangelogMismatchError, match="format"):
        plan_partition(replace(META, format=FORMAT_VERSION + 1), LOG, NOW)
    with pytest.raises(ChangelogMismatchError, match="upgrade"):
        plan_partition(replace(META, format=FORMAT_VERSION + 1, topic_id="other"), LOG, NOW)
