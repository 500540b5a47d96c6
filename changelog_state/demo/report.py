"""The verdict, as text and as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from changelog_state.demo.kills import Kill

__all__ = ["Report"]

_MOST_SHOWN = 5


@dataclass(frozen=True)
class Report:
    events: int
    """Purchases in the input topic."""
    keys: int
    """Users with state."""
    batches: int
    kills: list[Kill]
    expected_total: int
    """Of all users, in cents; folded from the input topic."""
    actual_total: int
    """Of all users, in cents; read from the state."""
    mismatched_keys: list[str]
    """Users whose total or number of purchases in the state is not that of the input topic."""
    mismatched_outputs: list[str]
    """Users whose output rows do not hold each of their changes exactly once."""
    output_rows: int
    seconds: float
    """The whole run, with all that was started and stopped."""
    throughput_per_second: float
    """Purchases per second from the first one to the last batch, the outages included."""
    fastest_batch_per_second: float
    data_dir: str | None
    """Where everything is, if it was kept."""

    @property
    def exactly_once(self) -> bool:
        return not self.mismatched_keys and not self.mismatched_outputs

    def to_json(self) -> dict[str, Any]:
        return {name: _rounded(value) for name, value in asdict(self).items()} | {"exactly_once": self.exactly_once}

    def print(self, console: Console) -> None:
        verdict, style = ("EXACTLY ONCE", "bold green") if self.exactly_once else ("NOT EXACTLY ONCE", "bold red")
        console.print()
        console.print(f"[{style}]{verdict}[/]: {self._verdict()}", soft_wrap=True, highlight=False)
        console.print()
        console.print(self._kills())
        console.print()
        for name, text in self._facts():
            console.print(f"  {name:<11}{escape(text)}", soft_wrap=True, highlight=False)

    def _verdict(self) -> str:
        if self.exactly_once:
            return f"{self.events:,} purchases, {len(self.kills)} kills, and every total is right."
        return "the state or the outputs differ from what the input says."

    def _kills(self) -> Table:
        table = Table("SIGKILL to", "when", "at", "recovered in", box=None, pad_edge=False, padding=(0, 2, 0, 2))
        for column in table.columns[2:]:
            column.justify, column.no_wrap = "right", True
        for kill in self.kills:
            times = (f"{kill.at_seconds:.1f} s", f"{kill.recovered_in_seconds:.1f} s")
            table.add_row(kill.what, kill.how, *times)
        return table

    def _facts(self) -> list[tuple[str, str]]:
        facts = [
            (
                "state",
                f"{self.keys:,} users, {_money(self.actual_total)} in all; "
                f"the input topic says {_money(self.expected_total)}; {_differ(self.mismatched_keys)}",
            ),
            (
                "outputs",
                f"{self.output_rows:,} rows of {self.batches:,} batches, one per user and change of the total; "
                f"{_differ(self.mismatched_outputs)}",
            ),
            (
                "throughput",
                f"{self.throughput_per_second:,.0f} purchases/s over the whole stream, outages included; "
                f"fastest batch {self.fastest_batch_per_second:,.0f}/s",
            ),
            ("time", f"{self.seconds:.0f} s"),
        ]
        if self.data_dir is not None:
            facts.append(("kept", self.data_dir))
        return facts


def _rounded(value: Any) -> Any:
    """Milliseconds are enough; more digits would only claim what was not measured."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return value


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02d}"


def _differ(keys: list[str]) -> str:
    if not keys:
        return "no user differs"
    more = ", …" if len(keys) > _MOST_SHOWN else ""
    return f"{len(keys):,} DIFFER: {', '.join(keys[:_MOST_SHOWN])}{more}"
