"""What a store records of its variables' declarations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from changelog_state.schemas.declared import codec_for
from changelog_state.schemas.evolution import check_evolution
from changelog_state.schemas.history import describe, merge_history, writer_schemas


def schema(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "shop.R",
        "doc": "of no importance",
        "fields": [{"name": name, "type": kind, **more} for name, kind in fields],
    }


def test_generations_are_kept_oldest_first_and_each_once() -> None:
    first, second = codec_for(schema(("a", "int")), name="v"), codec_for(schema(("a", "long")), name="v")
    anything, plain = codec_for(None, name="v"), codec_for(int, name="v")
    assert merge_history(None, first) == describe(first) == {"schemas": [first.declaration]}
    history = merge_history(merge_history(describe(anything), plain), first)
    assert history == {"schemas": [None, '{"builtin": "int"}', first.declaration]}
    both = merge_history(merge_history(history, second), first)
    assert both == {"schemas": [None, '{"builtin": "int"}', second.declaration, first.declaration]}
    assert json.loads(json.dumps(both)) == both


def test_defaults_aliases_and_documentation_are_no_new_generation() -> None:
    first = codec_for(schema(("a", "int")), name="v")
    second = codec_for(schema(("a", "int"), default=3, aliases=["b"], doc="x"), name="v")
    assert first.schema_json != second.schema_json
    assert first.declaration == second.declaration
    assert json.loads(first.declaration or "") == {
        "type": "record",
        "name": "shop.R",
        "fields": [{"name": "a", "type": "int"}],
    }


def test_logical_types_are_a_new_generation() -> None:
    first = codec_for(schema(("a", "long")), name="v")
    second = codec_for(schema(("a", {"type": "long", "logicalType": "timestamp-micros"})), name="v")
    assert first.fingerprint == second.fingerprint
    assert len(merge_history(describe(first), second)["schemas"]) == 2


def test_old_values_are_read_by_what_was_recorded() -> None:
    @dataclass
    class Old:
        count: int

    @dataclass
    class New:
        count: float
        note: str = "x"

    old, new = codec_for(Old, name="v"), codec_for(New, name="v")
    recorded = merge_history(merge_history(describe(codec_for(dict, name="v")), old), new)
    check_evolution("v", new, recorded["schemas"])
    assert writer_schemas(recorded).keys() == {old.fingerprint, new.fingerprint}
    assert new.decode(old.encode(Old(3)), writer_schemas(recorded).__getitem__) == New(3.0, "x")
    assert writer_schemas(None) == {}
