"""Progress bars on a terminal: the total, then one per partition."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from restore.figures import RestoreFigures, RestoreTotal
from restore.wording import duration_text, overall_fraction, percent, size_texts

__all__ = ["Bars"]

_BAR_WIDTH = 12
_MIN_WIDTHS = (14, _BAR_WIDTH, 5, 8, None, None, None)
"""Of the columns: what comes first is what a narrow terminal still shows."""
_OTHER_LINES = 4


class Bars:
    def __init__(self, title: str, stream: TextIO) -> None:
        self._console = Console(file=stream)
        self._console.print(title, markup=False, highlight=False)
        # Neither a thread of its own nor hands on the program's stdout: it is drawn when there is news.
        self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def show(self, total: RestoreTotal, waiting: int) -> None:
        table = Table.grid(padding=(0, 2))
        for width in _MIN_WIDTHS:
            table.add_column(min_width=width, no_wrap=True, overflow="ellipsis")
        eta = None if waiting else total.eta_seconds
        _row(table, "total", total, overall_fraction(total, waiting), eta)
        figures = list(total.figures)
        room = max(1, self._console.height - _OTHER_LINES)
        if len(figures) > room:
            figures = sorted(figures, key=lambda each: (each.finished, each.partition))[:room]
        for each in figures:
            _row(table, f"partition {each.partition}", each, each.fraction, each.eta_seconds)
        if waiting:
            table.add_row(f"{waiting} more waiting")
        self._live.update(table, refresh=True)

    def close(self, last_line: str) -> None:
        self._live.stop()  # the last picture stays, at 100 % if all went well
        self._console.print(last_line, markup=False, highlight=False)


def _row(
    table: Table, name: str, figures: RestoreFigures | RestoreTotal, fraction: float, eta_seconds: float | None
) -> None:
    table.add_row(
        name,
        ProgressBar(1.0, fraction, width=_BAR_WIDTH, complete_style="cyan", finished_style="green"),
        percent(fraction),
        "" if eta_seconds is None else f"ETA {duration_text(eta_seconds)}",
        *size_texts(figures),
        f"{figures.records_per_second:,.0f} records/s",
    )
