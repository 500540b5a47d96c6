"""What a run has left behind: rows in the outputs, totals in the state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from changelog_state.demo.check import OutputRow, Total
from changelog_state.service import StateService

__all__ = ["output_rows", "purchases_in", "totals_of_state"]


def output_rows(outputs: Path) -> Iterator[OutputRow]:
    import pyarrow.parquet as pq

    for directory in outputs.iterdir():
        batch = int(directory.name.partition("=")[2])
        table = pq.read_table(directory, partitioning=None)
        for row in table.to_pylist():
            yield OutputRow(batch=batch, **row)


def purchases_in(directory: Path) -> int:
    """How many purchases a batch's output accounts for; read without Spark, which would make it a job."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    return pc.sum(pq.read_table(directory, columns=["bought"])["bought"]).as_py() or 0


def totals_of_state(service: StateService) -> dict[str, Total]:
    return {key: Total(values.get("total_cents", 0), values.get("purchases", 0)) for key, values in service.scan()}
