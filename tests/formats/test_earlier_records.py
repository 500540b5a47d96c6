"""Records of the control topic that an earlier version of this library has written."""

from __future__ import annotations

import pytest

import changelog_state as cs
from changelog_state.changelog.record import BatchRecord
from changelog_state.schemas.declarations import Declarations
from changelog_state.state.variables import declared_types

FIRST = bytes.fromhex("c301eb76e417d1e9802a02710e020e000209020661626300")


def test_a_batch_from_before_late_watermarks() -> None:
    fields = {"query": "q", "batch": 7, "epoch": 1, "batch_time_ms": 7}
    fields |= {"watermark_before_ms": None, "watermark_after_ms": -5, "offsets_hash": "abc", "adopted_epoch": None}
    assert BatchRecord.decode(FIRST) == BatchRecord(**fields, late_watermark_ms=None)  # type: ignore[arg-type]
    assert BatchRecord.decode(BatchRecord(**fields, late_watermark_ms=3).encode()).late_watermark_ms == 3  # type: ignore[arg-type]


def test_maps_from_before_their_keys_were_recorded() -> None:
    earlier = b'{"by":{"kind":"map","schemas":[null]}}'
    declared = Declarations.decode(earlier).agreed(declared_types({"by": cs.Map("by", str)}))
    later = b'{"by":{"kind":"map","schemas":[null]},"by[keys]":{"kind":"map with string keys","schemas":[null]}}'
    assert declared.encode() == later
    with pytest.raises(cs.SchemaEvolutionError, match="bigint keys, but the store has it as a map with string keys"):
        Declarations.decode(later).agreed(declared_types({"by": cs.Map("by", int)}))
