"""Every example does what its page says: it judges itself, and raises SystemExit if something is wrong."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "local")


@pytest.fixture
def examples_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the script had been started there, also for Spark's workers."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.parametrize("name", NAMES)
def test_example(
    name: str,
    spark: Any,
    broker: Any,
    application: str,
    tmp_path: Path,
    examples_path: None,
    changelog_state_dir: Path,
) -> None:
    sys.modules.pop("local", None)
    local = importlib.import_module("local")
    example = importlib.import_module(name)
    spark.sparkContext.addPyFile(str(EXAMPLES / "local.py"))
    # As those of a script that was started: Spark's workers get its functions by value.
    cloudpickle.register_pickle_by_value(example)
    try:
        example.main(local.Place(spark, broker.bootstrap_servers, tmp_path, application))
    finally:
        cloudpickle.unregister_pickle_by_value(example)


def test_no_two_examples_share_a_topic() -> None:
    """They run on one broker here."""
    topics = {
        name: set(re.findall(r'place\.send\(\s*"([\w-]+)"', (EXAMPLES / f"{name}.py").read_text())) for name in NAMES
    }
    assert all(topics.values())
    assert sum(map(len, topics.values())) == len(set().union(*topics.values()))
