"""``changelog-state demo``: a stream, three kills, and a verdict."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from changelog_state.cli.output import print_json
from changelog_state.cli.running import signals_as_ctrl_c

__all__ = ["demo"]

_INTERRUPTED = 130


def demo(
    seconds: Annotated[
        float, typer.Option(min=1.0, help="How long purchases come in, at least; longer if a kill needs it.")
    ] = 35.0,
    events: Annotated[int, typer.Option(min=100, help="How many purchases come in that time, at least.")] = 250_000,
    users: Annotated[int, typer.Option(min=1, help="How many users buy: the keys of the state.")] = 5_000,
    partitions: Annotated[int, typer.Option(min=1, max=64, help="Partitions of the input and of the state.")] = 4,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep topics, state, outputs and logs, and say where they are.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
) -> None:
    """Watch a Spark stream keep its state right through crashes: about a minute, exit code 1 if it does not.

    Real Kafka, real Spark, random purchases, running totals per user. An agent is killed in the middle of a commit;
    again, with its disk wiped; then the driver. In the end every total is compared with the input.

    With --json, one document on standard output: events, keys, kills (what, how, at_seconds, recovered_in_seconds),
    expected_total and actual_total (in cents), mismatched_keys (a list), mismatched_outputs (a list), exactly_once,
    batches, output_rows, throughput_per_second, fastest_batch_per_second, seconds, data_dir (null unless kept).
    """
    from changelog_state.demo.narrator import Narrator
    from changelog_state.demo.run import run_demo
    from changelog_state.demo.settings import DemoSettings

    console = Console(stderr=as_json)
    settings = DemoSettings(seconds=seconds, events=events, users=users, partitions=partitions, keep=keep)
    try:
        with signals_as_ctrl_c():
            report = run_demo(settings, Narrator(console))
    except KeyboardInterrupt:
        console.print("interrupted: everything is stopped" + ("" if keep else ", and nothing is left"))
        raise typer.Exit(_INTERRUPTED) from None
    report.print(console)
    if as_json:
        print_json(report.to_json())
    if not report.exactly_once:
        raise typer.Exit(1)
