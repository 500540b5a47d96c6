"""One JSON document, whatever the state holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from changelog_state.cli.output import print_json


def test_whatever_state_holds_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        "by": {1: "int", (2, "a"): "tuple", b"\xff": "bytes", "text": {True: [{0.5: None}]}},
        "at": datetime(2024, 1, 1, tzinfo=UTC),
        "price": Decimal("1.50"),
        "raw": b"\x01",
    }
    print_json(document)
    assert json.loads(capsys.readouterr().out) == {
        "by": {"1": "int", '[2, "a"]': "tuple", '"ff"': "bytes", "text": {"true": [{"0.5": None}]}},
        "at": "2024-01-01T00:00:00+00:00",
        "price": "1.50",
        "raw": "01",
    }
