"""``python -m benchmarks [NAME…] [--quick]``: run benchmarks, print tables, add to benchmarks/out/results.json."""

from __future__ import annotations

import argparse
import importlib
import logging
import os

from rich.console import Console

from benchmarks.results import Report
from benchmarks.session import Bench

# Each module has ``run(bench: Bench, report: Report) -> None``.
BENCHES = {
    "apply-count": "benchmarks.apply_count",
    "kafka-output": "benchmarks.kafka_output",
    "small-batch": "benchmarks.small_batch",
    "restore": "benchmarks.restore",
    "reopen": "benchmarks.reopen",
    "failover": "benchmarks.failover",
    "aggregate": "benchmarks.aggregate",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    # Not ``choices``: argparse does not accept an empty list then.
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHES)}; all if none is given")
    parser.add_argument(
        "--quick", action="store_true", default=_quick(), help="a few minutes instead of many; also QUICK=1"
    )
    parser.add_argument("--verbose", action="store_true", help="log what the library does")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(BENCHES))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    logging.basicConfig(level=logging.INFO if arguments.verbose else logging.ERROR)
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    with Bench(quick=arguments.quick) as bench:
        for name in arguments.names or BENCHES:
            report = Report(name, quick=arguments.quick, console=console)
            try:
                importlib.import_module(BENCHES[name]).run(bench, report)
            finally:
                # What was measured before something failed is kept.
                report.finish()


def _quick() -> bool:
    return os.environ.get("QUICK", "") not in ("", "0")


if __name__ == "__main__":
    main()
