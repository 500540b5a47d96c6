"""The commands on a real store, as a person would type them; and ``clear`` while a batch is running."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.faults import arm
from tests.support.stream import SCHEMA, count

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_status_get_scan_and_clear(
    spark: Any, make_service: Any, broker: Any, application: str, tmp_path: Path, faults: Path
) -> None:
    def run(*words: str, code: int = 0, module: str = "changelog_state") -> Any:
        options = ["--application", application, "--store", "totals", "--state-dir", str(tmp_path / "state")]
        options += ["--bootstrap-servers", broker.bootstrap_servers, "--json"]
        command = [sys.executable, "-m", module, *words, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

    service = make_service()
    frame = spark.createDataFrame([("a",), ("b",), ("a",)], "user_id string")
    service.apply(frame, 0, count, key="user_id", schema=SCHEMA)
    assert [p["phase"] for p in run("status")["partitions"]] == ["ACTIVE"] * 4
    assert run("get", "a", "total") == {"key": "a", "values": {"total": 2}}
    assert run("get", "nobody", code=1) == {"key": "nobody", "values": {}}
    assert [found["key"] for found in run("scan", "--prefix", "a")] == ["a"]
    assert [p["partition"] for p in run("status", "--partitions", "1,3")["partitions"]] == [1, 3]
    each = [[found["key"] for found in run("scan", "--partitions", str(p))] for p in range(4)]
    assert sorted(key for keys in each for key in keys) == ["a", "b"]
    assert "no partition 4" in run("scan", "--partitions", "0-4", code=2)
    assert "leave partitions out" in run("clear", "--yes", "--partitions", "0", code=2)

    arm(faults, "driver.before_commit", "hold")
    held = faults / "driver.before_commit.held"
    batch = threading.Thread(
        target=service.apply, args=(frame, 1, count), kwargs={"key": "user_id", "schema": SCHEMA}
    )
    batch.start()
    deadline = time.monotonic() + 60
    while not held.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "batch 1" in run("clear", "--yes", code=1)
    with pytest.raises(cs.BatchRunningError, match="while a batch is running"):
        service.clear()
    held.unlink()
    batch.join(60)
    assert service.get("a", "total") == 4
    assert run("clear", "--yes") == {"cleared": 2}
    assert list(service.scan()) == []

    service.close()
    service = make_service()
    service.apply(frame, 0, count, key="user_id", schema=SCHEMA)
    assert "is used by another agent" in run("clear", "--changelog", "--yes", "--force", code=2, module="restore")
    service.close()
    done = run("clear", "--changelog", "--yes", module="restore")
    assert len(done["topics"]) == 2, "a driver that has said farewell is no active query"
    assert len(done["partitions"]) == 4
