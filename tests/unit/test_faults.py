"""Fault points: armed by a file, fired once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from changelog_state.faults import InjectedFaultError, arm, fault_point


def test_without_the_variable_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHANGELOG_STATE_FAULTS", raising=False)
    arm(tmp_path, "point", "raise")
    fault_point("point")
    monkeypatch.setenv("CHANGELOG_STATE_FAULTS", "")
    fault_point("point")


def test_a_point_fires_once_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGELOG_STATE_FAULTS", str(tmp_path))
    fault_point("point")
    arm(tmp_path, "point", "raise")
    fault_point("other")
    assert not (tmp_path / "point.fired").exists()
    with pytest.raises(InjectedFaultError, match="point"):
        fault_point("point")
    assert (tmp_path / "point.fired").exists()
    fault_point("point")


def test_passings_are_counted_over_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGELOG_STATE_FAULTS", str(tmp_path))
    arm(tmp_path, "point", "raise 50")
    fired: list[int] = []

    def pass_by(number: int) -> None:
        try:
            fault_point("point")
        except InjectedFaultError:
            fired.append(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pass_by, range(49)))
    assert fired == []
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pass_by, range(20)))
    assert len(fired) == 1


def test_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGELOG_STATE_FAULTS", str(tmp_path))
    arm(tmp_path, "point", "hold")
    thread = threading.Thread(target=fault_point, args=("point",), daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not (tmp_path / "point.held").exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert thread.is_alive()
    (tmp_path / "point.held").unlink()
    thread.join(20)
    assert not thread.is_alive()


def test_kill(tmp_path: Path) -> None:
    arm(tmp_path, "point")
    code = "from changelog_state.faults import fault_point; fault_point('point'); print('alive')"
    command = [sys.executable, "-c", code]
    first = subprocess.run(command, env={"CHANGELOG_STATE_FAULTS": str(tmp_path)}, capture_output=True, check=False)
    assert first.returncode == -signal.SIGKILL
    second = subprocess.run(command, env={"CHANGELOG_STATE_FAULTS": str(tmp_path)}, capture_output=True, check=False)
    assert second.stdout == b"alive\n"


def test_an_unknown_action_is_a_mistake_of_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGELOG_STATE_FAULTS", str(tmp_path))
    arm(tmp_path, "point", "explode")
    with pytest.raises(ValueError, match="explode"):
        fault_point("point")
