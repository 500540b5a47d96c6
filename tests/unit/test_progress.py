"""What people and programs are told about a restore, from the first offset to exactly 100 %."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from restore.progress import RestoreDisplay, RestoreFigures
from restore.replay import ReplayProgress
from restore.wording import bytes_text, duration_text


def figures(
    position: int, records: int = 0, size: int = 0, seconds: float = 0.0, *, start: int = 100, partition: int = 0
) -> RestoreFigures:
    return RestoreFigures(partition, "RESTORING", "behind", start, position, 1_100, records, size, seconds)


def test_the_beginning() -> None:
    begun = figures(100)
    assert (begun.fraction, begun.records_to_do, begun.bytes_to_do) == (0.0, 1_000, 0)
    assert (begun.records_per_second, begun.eta_seconds) == (0.0, None)


def test_the_middle_is_an_estimate_from_what_was_read() -> None:
    """Half of the offsets are gaps so far."""
    middle = figures(300, records=100, size=5_000, seconds=2.0)
    assert middle.fraction == 0.2
    assert (middle.records_to_do, middle.bytes_to_do) == (400, 20_000)
    assert (middle.records_per_second, middle.eta_seconds) == (50.0, 8.0)


def test_there_are_never_more_records_than_offsets_left() -> None:
    assert figures(101, records=5, size=5, seconds=1.0).records_to_do == 999


@pytest.mark.parametrize("position", [1_100, 1_101])
def test_the_end_is_exactly_1(position: int) -> None:
    ended = figures(position, records=333, size=999, seconds=3.0)
    assert (ended.fraction, ended.records_to_do, ended.bytes_to_do, ended.eta_seconds) == (1.0, 0, 0, 0.0)
    assert ended.finished


def test_nothing_to_do_is_done() -> None:
    nothing = figures(1_100, start=1_100)
    assert (nothing.fraction, nothing.records_to_do, nothing.eta_seconds) == (1.0, 0, 0.0)


def test_figures_of_a_replay_and_of_its_dict() -> None:
    progress = ReplayProgress(1, 2, 3, records=4, bytes=5, seconds=6.0, need="behind")
    expected = RestoreFigures(7, "RESTORING", "behind", 1, 2, 3, 4, 5, 6.0)
    assert RestoreFigures.of(7, "RESTORING", progress) == expected
    assert RestoreFigures.of(7, "RESTORING", vars(progress) | {"unknown": 1}) == expected
    plain = json.loads(json.dumps(expected.to_json()))
    assert plain["partition"] == 7
    assert (plain["fraction"], plain["records_to_do"], plain["eta_seconds"]) == (0.5, 1, 6.0)


# -- the display -------------------------------------------------------------------------------------------


class Stage:
    """A display, what it has printed, and its clock."""

    def __init__(self, stream: io.StringIO | None = None, **settings: Any) -> None:
        self.now = 0.0
        self.stream = stream or io.StringIO()
        self.display = RestoreDisplay("restoring app/store", self.stream, lambda: self.now, **settings)

    def at(self, now: float, found: Iterable[RestoreFigures], waiting: int = 0) -> None:
        self.now = now
        self.display.update(found, waiting)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_short_restore_prints_nothing(stream: type[io.StringIO]) -> None:
    stage = Stage(stream())
    with stage.display:
        stage.at(0.0, [figures(100)])
        stage.at(1.9, [figures(1_100, 10)])
    assert stage.stream.getvalue() == ""


def test_short_ones_are_shown_if_asked_for() -> None:
    stage = Stage(quiet_seconds=0.0)
    with stage.display:
        stage.at(0.0, [figures(1_100, 10, 1_000)])
    assert stage.lines[-1].startswith("restoring app/store: 100 %, 1 of 1 partitions; 10 records, 1.0 kB in 0 s")


def test_a_line_every_few_seconds_and_a_closing_one() -> None:
    stage = Stage()
    with stage.display:
        for tenth in range(1_000):
            done = 100 + tenth
            stage.at(tenth / 100, [figures(done, tenth, 10 * tenth, tenth / 100), figures(1_100, partition=1)])
        stage.at(10.0, [figures(1_100, 1_000, 10_000, 10.0)])
    assert [re.search(r"(\d+ %)", line)[1] for line in stage.lines] == ["60 %", "85 %", "100 %"]  # type: ignore[index]
    assert stage.lines[0] == (
        "restoring app/store: 60 %, 1 of 2 partitions, 200 of ~1,000 records, 2.0 kB of ~10.0 kB, "
        "100 records/s, 8 s left"
    )
    assert stage.lines[-1] == (
        "restoring app/store: 100 %, 2 of 2 partitions; 1,000 records, 10.0 kB in 10 s, 100 records/s"
    )


def test_100_percent_is_not_said_too_early() -> None:
    """Neither by rounding up, nor while partitions have not begun."""
    stage = Stage(quiet_seconds=0.0)
    almost = RestoreFigures(0, "RESTORING", "behind", 0, 99_999, 100_000, 1, 1, 1.0)
    with stage.display:
        stage.at(1.0, [almost], waiting=0)
        stage.at(10.0, [figures(1_100)], waiting=1)
    assert ": 99 %, 0 of 1 partitions" in stage.lines[0]
    assert ": 50 %, 1 of 2 partitions" in stage.lines[1]
    assert "not known yet" in stage.lines[1]
    assert "stopped with 1 of 2 partitions" in stage.lines[-1]


def test_one_that_is_cut_short_says_so() -> None:
    stage = Stage()
    stage.at(3.0, [figures(600, 5), figures(1_100, partition=1)])
    with pytest.raises(KeyError), stage.display:
        raise KeyError("deadline")
    assert "stopped with 1 of 2 partitions restored; 5 records" in stage.lines[-1]


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", "40")
    monkeypatch.setenv("TERM", "xterm")
    threads = threading.active_count()
    stage = Stage(Terminal())
    with stage.display:
        stage.at(3.0, [figures(600, 500, 5_000, 3.0), figures(1_100, 1_000, 10_000, 2.0, partition=1)])
        assert threading.active_count() == threads, "it is drawn by update alone"
        shown = stage.stream.getvalue()
        for text in ("restoring app/store", "75 %", "partition 0", "50 %", "partition 1", "100 %", "━"):
            assert text in shown
        assert "500 of ~1,000 records" in shown
        stage.at(4.0, [figures(1_100, 1_000, 10_000, 4.0)])
    last = stage.stream.getvalue()[len(shown) :]
    assert last.count("100 %") >= 4, "total, both partitions, closing line"
    assert stage.lines[-1].endswith("100 %, 2 of 2 partitions; 2,000 records, 20.0 kB in 4 s, 500 records/s")


def test_more_partitions_than_the_terminal_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("TERM", "xterm")
    stage = Stage(Terminal())
    with stage.display:
        stage.at(3.0, [*(figures(1_100, partition=p) for p in range(50)), figures(200, partition=50)])
        assert "partition 50" in stage.stream.getvalue(), "what is under way comes first"
        assert stage.stream.getvalue().count("partition ") <= 8


def test_a_stream_that_cannot_be_written_to_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.stream.close()
    with caplog.at_level(logging.WARNING), stage.display:
        for now in (3.0, 4.0, 60.0):
            stage.at(now, [figures(600)])
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["progress is not shown any more"]


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (61, "1 min 01 s"), (7_260, "2 h 01 min")])
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2 * 10**16, "20000.0 TB")]
)
def test_sizes(count: int, text: str) -> None:
    assert bytes_text(count) == text
