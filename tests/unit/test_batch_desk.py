"""Requests to open a batch that come twice, or late."""

from __future__ import annotations

from pathlib import Path

import pytest

from changelog_state.agent.batch_desk import BatchDesk, OpenBatch
from changelog_state.agent.staging import StagedWork, StagingBudget


@pytest.fixture
def desk(tmp_path: Path) -> BatchDesk:
    return BatchDesk(StagingBudget(1_000, tmp_path))


def staged(desk: BatchDesk) -> StagedWork:
    work = desk.begin_stage()
    work.seal(frozenset())
    desk.keep(work)
    return work


def batch(token: str, asked: int, epoch: int = 1) -> OpenBatch:
    return OpenBatch("q", 7, epoch, token, "driver", asked)


def test_another_run_of_the_batch_drops_what_was_staged(desk: BatchDesk) -> None:
    desk.open(batch("first", 1))
    work = staged(desk)
    desk.open(batch("second", 2))
    assert desk.staged(work.stage_id) is None


def test_asked_twice_for_the_same_nothing_is_dropped(desk: BatchDesk) -> None:
    desk.open(batch("first", 1))
    work = staged(desk)
    desk.open(batch("first", 2))
    assert desk.staged(work.stage_id) is work


def test_a_request_that_was_overtaken_changes_nothing(desk: BatchDesk) -> None:
    desk.open(batch("second", 2))
    work = staged(desk)
    desk.open(batch("first", 1))
    assert desk.batch is not None
    assert desk.batch.token == "second"
    assert desk.staged(work.stage_id) is work
    desk.open(batch("third", 1, epoch=2))
    assert desk.batch.token == "third", "another driver counts for itself"
