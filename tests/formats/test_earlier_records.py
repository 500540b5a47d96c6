"""Records of the control topic that an earlier version of this library has written."""

from __future__ import annotations

from changelog_state.changelog.record import BatchRecord

FIRST = bytes.fromhex("c301eb76e417d1e9802a02710e020e000209020661626300")


def test_a_batch_from_before_late_watermarks() -> None:
    fields = {"query": "q", "batch": 7, "epoch": 1, "batch_time_ms": 7}
    fields |= {"watermark_before_ms": None, "watermark_after_ms": -5, "offsets_hash": "abc", "adopted_epoch": None}
    assert BatchRecord.decode(FIRST) == BatchRecord(**fields, late_watermark_ms=None)  # type: ignore[arg-type]
    assert BatchRecord.decode(BatchRecord(**fields, late_watermark_ms=3).encode()).late_watermark_ms == 3  # type: ignore[arg-type]
