"""Which batch is this: every answer that the gate can give."""

from __future__ import annotations

from typing import Any

import pytest

from changelog_state.changelog.record import BatchRecord
from changelog_state.errors import (
    BatchRefusedError,
    CheckpointRolledBackError,
    NewQueryError,
    OffsetsChangedError,
    ReplayImpossibleError,
)
from restore.gate import MarkerView, Verdict, judge_batch

NONE: frozenset[int] = frozenset()


def record(batch: int, query: str = "q", offsets: str | None = "o1", adopted: int | None = None) -> BatchRecord:
    return BatchRecord(query, batch, 3, 1_000, None, None, offsets, adopted)


def marker(partition: int, batch: int, query: str = "q", epoch: int = 3, replayable: bool = True) -> MarkerView:
    return MarkerView(partition, query, batch, epoch, replayable)


def judge(markers: list[MarkerView], known: BatchRecord | None, batch: int = 7, **changes: Any) -> Verdict:
    settings: dict[str, Any] = {
        "store": "app/store",
        "query": "q",
        "batch": batch,
        "epoch": 9,
        "offsets_hash": "o1",
        "markers": markers,
        "record": known,
        "on_new_query": "refuse",
        "on_unreplayable": "refuse",
    }
    return judge_batch(**(settings | changes))


def verdict(
    known: BatchRecord | None = None,
    replayed: set[int] | None = None,
    skipped: set[int] | None = None,
    adopted: int | None = None,
    clear_first: bool = False,
) -> Verdict:
    return Verdict(known, frozenset(replayed or ()), frozenset(skipped or ()), adopted, clear_first)


@pytest.mark.parametrize(
    ("markers", "known", "changes", "expected"),
    [
        pytest.param([], None, {}, verdict(), id="an empty store"),
        pytest.param([marker(0, 6), marker(1, 5)], record(6), {}, verdict(), id="the next batch"),
        pytest.param([marker(0, 3)], record(3), {}, verdict(), id="batches without changes leave no markers"),
        pytest.param([marker(0, 6)], record(7), {}, verdict(record(7)), id="recorded, not committed anywhere"),
        pytest.param([marker(0, 7), marker(1, 6)], record(7), {}, verdict(record(7), {0}), id="committed in part"),
        pytest.param([marker(0, 7), marker(1, 7)], record(7), {}, verdict(record(7), {0, 1}), id="a full replay"),
        pytest.param([marker(0, 7)], None, {}, verdict(None, {0}), id="a replay whose record is gone"),
        pytest.param(
            [marker(0, 7)], record(7), {"offsets_hash": None}, verdict(record(7), {0}), id="offsets unknown"
        ),
        pytest.param(
            [marker(0, 7)],
            record(7, offsets=None),
            {},
            verdict(record(7, offsets=None), {0}),
            id="offsets not recorded",
        ),
        pytest.param(
            [marker(0, 6)], record(6, offsets="o0"), {}, verdict(), id="another batch's offsets do not matter"
        ),
        pytest.param(
            [marker(0, 6, replayable=False)], record(6), {}, verdict(), id="only a replay needs before-images"
        ),
        pytest.param(
            [marker(0, 7, replayable=False), marker(1, 7)],
            record(7),
            {"on_unreplayable": "skip"},
            verdict(record(7), {0, 1}, {0}),
            id="rows skipped as told",
        ),
        pytest.param(
            [marker(0, 7, "other"), marker(1, 99, "other")],
            record(99, "other"),
            {"on_new_query": "continue"},
            verdict(adopted=9),
            id="taken over, whatever its batches were",
        ),
        pytest.param(
            [marker(0, 7, "other")],
            record(7, "other"),
            {"on_new_query": "clear"},
            verdict(adopted=9, clear_first=True),
            id="cleared first",
        ),
        pytest.param(
            [],
            record(7, "other"),
            {"on_new_query": "clear"},
            verdict(adopted=9, clear_first=True),
            id="cleared, but the record was not forgotten before a crash",
        ),
        pytest.param(
            [marker(0, 50, "other", epoch=8), marker(1, 6, epoch=9)],
            record(6, adopted=9),
            {},
            verdict(adopted=9),
            id="markers from before the take-over",
        ),
        pytest.param(
            [marker(0, 50, "other", epoch=8), marker(1, 7, epoch=9)],
            record(7, adopted=9),
            {},
            verdict(record(7, adopted=9), {1}, adopted=9),
            id="a replay after the take-over",
        ),
    ],
)
def test_accepted(
    markers: list[MarkerView], known: BatchRecord | None, changes: dict[str, Any], expected: Verdict
) -> None:
    assert judge(markers, known, **changes) == expected


@pytest.mark.parametrize(
    ("markers", "known", "changes", "error", "words"),
    [
        pytest.param(
            [marker(0, 8)], record(8), {}, CheckpointRolledBackError, "batch 8.*asks for batch 7", id="ahead"
        ),
        pytest.param(
            [marker(0, 6), marker(1, 8)],
            record(8),
            {},
            CheckpointRolledBackError,
            "batch 8",
            id="one partition ahead",
        ),
        pytest.param(
            [marker(0, 6)], record(9), {}, CheckpointRolledBackError, "batch 9", id="only the record is ahead"
        ),
        pytest.param([marker(0, 9)], None, {}, CheckpointRolledBackError, "batch 9", id="only a marker is ahead"),
        pytest.param(
            [marker(0, 1, "other")], None, {}, NewQueryError, "query other.*query q", id="another query's marker"
        ),
        pytest.param([], record(1, "other"), {}, NewQueryError, "on_new_query", id="another query's record"),
        pytest.param(
            [marker(0, 6), marker(1, 6, "other")],
            record(6),
            {},
            NewQueryError,
            "other",
            id="another query in one partition",
        ),
        pytest.param(
            [marker(0, 2, "other", epoch=9)],
            record(6, adopted=9),
            {},
            NewQueryError,
            "other",
            id="the other query came back after the take-over",
        ),
        pytest.param(
            [marker(0, 7)], record(7, offsets="o2"), {}, OffsetsChangedError, "o2 then, o1 now", id="other offsets"
        ),
        pytest.param(
            [], record(7, offsets="o2"), {}, OffsetsChangedError, "o2 then", id="other offsets, nothing committed yet"
        ),
        pytest.param(
            [marker(0, 7, replayable=False), marker(3, 7, replayable=False), marker(1, 7)],
            record(7),
            {},
            ReplayImpossibleError,
            r"partitions \[0, 3\].*on_unreplayable='skip'",
            id="before-images are gone",
        ),
    ],
)
def test_refused(
    markers: list[MarkerView], known: BatchRecord | None, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        judge(markers, known, **changes)
    assert "app/store" in str(raised.value)


@pytest.mark.parametrize(
    ("markers", "known", "expected"),
    [
        pytest.param([], None, verdict(), id="an empty store"),
        pytest.param([], record(7), verdict(record(7)), id="recorded, not committed anywhere"),
        pytest.param([marker(0, 7)], record(7), verdict(record(7), {0}), id="committed in part"),
        pytest.param([marker(0, 7), marker(1, 7)], None, verdict(None, {0, 1}), id="its record is gone"),
    ],
)
def test_an_import_is_a_stores_first_batch_or_its_replay(
    markers: list[MarkerView], known: BatchRecord | None, expected: Verdict
) -> None:
    assert judge(markers, known, into_empty=True) == expected


@pytest.mark.parametrize(
    ("markers", "known", "words"),
    [
        pytest.param(
            [marker(0, 5)], record(5), "not empty: it has batch 5 of query q, and batch 7", id="an earlier one"
        ),
        pytest.param([marker(0, 5)], record(7), "has batch 5 of query q, and", id="an earlier one in a partition"),
        pytest.param([], record(5), "not empty: it has batch 5 of query q", id="an earlier one that was recorded"),
        pytest.param([marker(0, 7), marker(1, 8)], record(8), "has batch 8 of .* goes on here", id="goes on"),
        pytest.param([marker(0, 7)], record(8), "goes on here, and nothing is left to import", id="without changes"),
        pytest.param([marker(0, 7, "r")], None, "not empty: it has batch 7 of query r", id="another query's marker"),
        pytest.param([marker(0, 7)], record(9, "r"), "not empty: it has batch 9 of query r", id="another's record"),
        pytest.param([marker(0, 9), marker(1, 1, "r")], record(9), "it has batch 9 .*, batch 1", id="both"),
        pytest.param(
            [marker(0, 3, "r", epoch=8)],
            record(7, adopted=9),
            "it has batch 3 of query r",
            id="taken over by another",
        ),
    ],
)
@pytest.mark.parametrize("on_new_query", ["refuse", "continue", "clear"])
def test_an_import_does_not_mix_with_other_state(
    markers: list[MarkerView], known: BatchRecord | None, words: str, on_new_query: str
) -> None:
    with pytest.raises(BatchRefusedError, match=f"app/store .*{words}") as raised:
        judge(markers, known, into_empty=True, on_new_query=on_new_query)
    assert "clear()" in str(raised.value)
    assert "on_new_query" not in str(raised.value)


def test_marker_views_come_from_statuses() -> None:
    status = {"partition": 2, "marker": {"query": "q", "batch": 4, "epoch": 5}, "replayable": True}
    assert MarkerView.from_status(status) == MarkerView(2, "q", 4, 5, True)
    assert MarkerView.from_status(status | {"marker": None}) is None
