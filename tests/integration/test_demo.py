"""``changelog-state demo``: it kills, recovers, compares, leaves nothing behind; and a wrong state does not pass."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from changelog_state.cli import app
from changelog_state.demo import run as demo_run
from changelog_state.demo.check import OutputRow, Total, differing_keys, differing_outputs
from changelog_state.demo.kills import Kill
from changelog_state.demo.report import Report

_SMALL = ["--seconds", "5", "--events", "20000", "--users", "300", "--partitions", "2"]
_COMMAND = [sys.executable, "-m", "changelog_state", "demo", "--json", *_SMALL]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(280)
def test_state_and_outputs_are_exact_after_three_kills(tmp_path: Path) -> None:
    done = subprocess.run(_COMMAND, env=_environment(tmp_path), capture_output=True, text=True, timeout=270)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["exactly_once"] is True
    assert found["mismatched_keys"] == []
    assert found["mismatched_outputs"] == []
    assert found["expected_total"] == found["actual_total"] > 0
    assert found["events"] >= 20_000
    assert found["keys"] == 300
    assert [kill["what"] for kill in found["kills"]] == ["agent", "agent and disk", "driver"]
    assert all(0 < kill["recovered_in_seconds"] < found["seconds"] for kill in found["kills"])
    assert done.stderr.count("KILLED") == done.stderr.count("RECOVERED in") == 3
    assert "EXACTLY ONCE" in done.stderr
    _assert_nothing_left(tmp_path)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        _COMMAND,
        env=_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "the first batch is done" in line:
            break
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert "interrupted" in stderr
    _assert_nothing_left(tmp_path)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_a_failure_says_where_the_logs_are(tmp_path: Path) -> None:
    environment = _environment(tmp_path) | {"PYSPARK_SUBMIT_ARGS": "--no-such-option pyspark-shell"}
    done = subprocess.run(_COMMAND, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "the driver ended unexpectedly" in done.stderr
    logs = [line.strip() for line in done.stderr.splitlines() if line.strip().endswith("driver.log")]
    assert "no-such-option" in Path(logs[0]).read_text()
    assert _processes_of(tmp_path) == []


def _environment(temporary: Path) -> dict[str, str]:
    """All that the demo makes goes there, and all that it starts can be recognized by it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CHANGELOG_STATE_")} | {
        "TMPDIR": str(temporary)
    }


def _assert_nothing_left(temporary: Path) -> None:
    assert list(temporary.iterdir()) == []
    assert _processes_of(temporary) == []


def _processes_of(temporary: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(temporary).encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


# -- the comparison --------------------------------------------------------------------------------------

_EXPECTED = {"ann": Total(500, 2), "bob": Total(70, 1)}
_OUTPUTS = [OutputRow(0, "ann", 1, 200, 200), OutputRow(1, "bob", 1, 70, 70), OutputRow(1, "ann", 1, 300, 500)]


def test_equal_state_passes() -> None:
    assert differing_keys(_EXPECTED, dict(_EXPECTED)) == []


@pytest.mark.parametrize(
    ("actual", "differing"),
    [
        pytest.param(_EXPECTED | {"ann": Total(501, 2)}, ["ann"], id="wrong total"),
        pytest.param(_EXPECTED | {"ann": Total(500, 3)}, ["ann"], id="right total of too many purchases"),
        pytest.param({"ann": Total(500, 2)}, ["bob"], id="lost key"),
        pytest.param(_EXPECTED | {"eve": Total(0, 0)}, ["eve"], id="key from nowhere"),
        pytest.param({"ann": Total(70, 1), "bob": Total(500, 2)}, ["ann", "bob"], id="swapped, same sum"),
        pytest.param({}, ["ann", "bob"], id="empty"),
    ],
)
def test_wrong_state_is_found(actual: dict[str, Total], differing: list[str]) -> None:
    assert differing_keys(_EXPECTED, actual) == differing


def test_right_outputs_pass_in_any_order_of_files() -> None:
    assert differing_outputs(_EXPECTED, reversed(_OUTPUTS)) == []


@pytest.mark.parametrize(
    ("rows", "differing"),
    [
        pytest.param(_OUTPUTS[:2], ["ann"], id="lost batch"),
        pytest.param([*_OUTPUTS, _OUTPUTS[1]], ["bob"], id="written twice"),
        pytest.param([replace(_OUTPUTS[0], total_cents=0), *_OUTPUTS[1:]], ["ann"], id="on the wrong state"),
        pytest.param([*_OUTPUTS, OutputRow(2, "eve", 1, 1, 1)], ["eve"], id="from nowhere"),
        pytest.param([*_OUTPUTS, OutputRow(1, "bob", 0, 0, 70)], ["bob"], id="two rows in one batch, nothing added"),
    ],
)
def test_wrong_outputs_are_found(rows: list[OutputRow], differing: list[str]) -> None:
    assert differing_outputs(_EXPECTED, rows) == differing


# -- the verdict -----------------------------------------------------------------------------------------

_REPORT = Report(
    events=3,
    keys=2,
    batches=2,
    kills=[Kill("agent", "in the middle of a commit", 1.0, 2.0)],
    expected_total=570,
    actual_total=570,
    mismatched_keys=[],
    mismatched_outputs=[],
    output_rows=3,
    seconds=60.0,
    throughput_per_second=1.0,
    fastest_batch_per_second=2.0,
    data_dir=None,
)


@pytest.mark.parametrize(
    ("changes", "code", "verdict"),
    [
        ({}, 0, "\nEXACTLY ONCE"),
        ({"mismatched_keys": ["ann"]}, 1, "NOT EXACTLY ONCE"),
        ({"mismatched_outputs": ["bob"]}, 1, "NOT EXACTLY ONCE"),
    ],
)
def test_exit_code_and_document_tell_the_verdict(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], code: int, verdict: str
) -> None:
    report = replace(_REPORT, **changes)
    monkeypatch.setattr(demo_run, "run_demo", lambda settings, narrator: report)
    result = CliRunner().invoke(app, ["demo", "--json"])
    assert result.exit_code == code
    document = json.loads(result.stdout)
    assert document["exactly_once"] is (code == 0)
    assert document["mismatched_keys"] == report.mismatched_keys
    assert verdict in result.stderr
