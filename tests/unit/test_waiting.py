"""What a gate that waits shows, tells, and says when it gives up."""

from __future__ import annotations

from typing import Any

import pytest

from changelog_state.errors import AgentUnavailableError, BrokerUnavailableError, ChangelogStateError, StoreError
from restore import progress as progress_module
from restore.claim_failures import MOST_FAILURES, ClaimFailures
from restore.waiting import RestoreWait, not_ready_text
from tests.support.recorder import Recorder

EPOCH = 3


def status(partition: int, phase: str, position: int | None = None, **changes: Any) -> dict[str, Any]:
    restore = None
    if position is not None:
        restore = {"start": 0, "position": position, "end": 100, "records": position, "bytes": 0}
        restore |= {"seconds": 1.0, "need": "behind"}
    known = {"partition": partition, "phase": phase, "epoch": EPOCH, "position": position, "restore": restore}
    return known | {"error": None} | changes


def waiting(recorder: Recorder, show: bool = True) -> RestoreWait:
    return RestoreWait("app/store", EPOCH, recorder, show=show)


def test_the_text_names_each_partition_and_what_it_waits_for() -> None:
    latest = {
        0: status(0, "RESTORING", 60),
        1: status(1, "FAILED", 7, error={"class": "StoreError", "message": "disk full"}),
        2: status(2, "CLOSED", 9),
    }
    text = not_ready_text("app/store", 2.5, [0, 1, 2, 3], latest, {1: "disk full"}, ValueError("no agent came up"))
    assert text.startswith("store app/store was not ready within 2.5 s: ")
    assert "partition 0 is RESTORING at position 60 of end offset 100, last error: no agent came up; " in text
    assert "partition 1 is FAILED at position 7 of end offset 100, last error: disk full; " in text
    assert "partition 2 is CLOSED at position 9 of end offset unknown" in text
    assert "partition 3: no agent has answered for it, last error: no agent came up. " in text
    assert "No event of the batch was processed" in text
    assert "raise restore_timeout_seconds" in text


def test_errors_are_remembered_after_another_attempt_has_begun() -> None:
    with waiting(Recorder(), show=False) as wait:
        wait.saw([status(0, "FAILED", error={"class": "StoreError", "message": "disk full"})], {0: "a"})
        wait.saw([status(0, "RESTORING", 10)], {0: "a"})
        assert wait.last_errors == {0: "disk full"}
        assert wait.latest[0]["phase"] == "RESTORING"


def test_a_lost_agent_shows_in_the_text_and_to_the_listener() -> None:
    recorder = Recorder()
    with waiting(recorder) as wait:
        wait.saw([status(0, "RESTORING", 10), status(1, "ACTIVE", 100)], {0: "a", 1: "b"})
        wait.lost("a", AgentUnavailableError("agent a does not answer"))
        text = not_ready_text("app/store", 1, [0], wait.latest, wait.last_errors)
    assert recorder.kinds(0) == ["start", "suspended"]
    assert "partition 0 is LOST (it was RESTORING) at position 10 of end offset 100" in text
    assert "last error: agent a does not answer" in text


def test_the_listener_gets_the_error_by_its_class() -> None:
    recorder = Recorder()
    with waiting(recorder) as wait:
        wait.saw([status(0, "RESTORING", 10)], {0: "a"})
        error = {"class": "BrokerUnavailableError", "message": "no broker"}
        wait.saw([status(0, "FAILED", 10, error=error)], {0: "a"})
    [told] = recorder.errors
    assert (type(told), str(told)) == (BrokerUnavailableError, "no broker")


@pytest.mark.parametrize("show", [True, False])
def test_what_is_shown(show: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress_module, "_LINE_SECONDS", 0.0)
    monkeypatch.setattr("restore.waiting._QUIET_SECONDS", 0.0)
    owners = {0: "a", 1: "a", 2: "a"}
    with waiting(Recorder(), show) as wait:
        wait.saw([status(0, "RESTORING", 50), status(1, "CLOSED"), status(2, "ACTIVE", 9)], owners)
        wait.saw([status(0, "ACTIVE", 100), status(1, "ACTIVE", 100)], owners)
    shown = capsys.readouterr().err.splitlines()
    if show:
        assert shown[0].startswith("restoring app/store: 25 %, 0 of 2 partitions"), "the third was ready before"
        assert shown[-1].startswith("restoring app/store: 100 %, 2 of 2 partitions")
    else:
        assert shown == []


def failed(error: str | None, *, pending: bool = False) -> dict[str, Any]:
    reason = None if error is None else {"class": error, "message": "why"}
    return status(0, "FAILED", error=reason, claim_pending=pending)


def test_failures_in_a_row_are_counted_and_the_last_is_raised() -> None:
    failures = ClaimFailures()
    for _ in range(MOST_FAILURES - 1):
        failures.note([failed("StoreError"), status(1, "RESTORING", 5, claim_pending=True)])
    with pytest.raises(StoreError, match="why"):
        failures.note([failed("StoreError")])


def test_an_old_failure_whose_turn_has_not_come_does_not_count() -> None:
    failures = ClaimFailures()
    for _ in range(MOST_FAILURES + 1):
        failures.note([failed("BrokerUnavailableError", pending=True)])
    with pytest.raises(BrokerUnavailableError):
        failures.note([failed("BrokerUnavailableError")])


def test_a_failure_without_a_reason() -> None:
    failures = ClaimFailures()
    for _ in range(MOST_FAILURES - 1):
        failures.note([failed(None)])
    with pytest.raises(ChangelogStateError, match="gave no reason"):
        failures.note([failed(None)])
