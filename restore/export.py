"""All values of local stores into one file, row by row, whatever their size."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from changelog_state.codec.kinds import DATA
from changelog_state.codec.plain import plain
from changelog_state.store.offline import offline_view
from restore.entries import decode_entry, schemas_in
from restore.inspection import codec_of

__all__ = ["Format", "export"]

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("key", pa.string()),
        ("name", pa.string()),
        ("value", pa.string()),
        ("expires_ms", pa.int64()),
        ("entry", pa.string()),
    ]
)
_ROW_GROUP = 10_000


class Format(StrEnum):
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


def export(paths: Mapping[int, Path], file_format: Format, output: Path | None) -> int:
    """Write every value of these partitions' stores; returns how many. A file appears when it is complete."""
    rows = _Counted(_rows(paths))
    if output is None:
        _write_text(rows, file_format, sys.stdout)
        return rows.count
    with _in_one_piece(output) as partial:
        if file_format is Format.PARQUET:
            _write_parquet(rows, partial)
        else:
            with partial.open("w", newline="", encoding="utf-8") as stream:
                _write_text(rows, file_format, stream)
    return rows.count


class _Counted:
    def __init__(self, rows: Iterator[dict[str, Any]]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> _Counted:
        return self

    def __next__(self) -> dict[str, Any]:
        row = next(self._rows)
        self.count += 1
        return row


def _rows(paths: Mapping[int, Path]) -> Iterator[dict[str, Any]]:
    for partition, path in paths.items():
        with offline_view(path) as state:
            codec = codec_of(state.store) if state is not None else None
            if state is None or codec is None:
                continue
            for record_key, data in state.scan_prefix(DATA):
                entry = decode_entry(codec, record_key, data, schemas_in(state.store))
                yield {"partition": partition, **vars(entry)}


def _write_text(rows: Iterator[dict[str, Any]], file_format: Format, stream: TextIO) -> None:
    if file_format is Format.JSON:
        stream.write("[")
        for number, row in enumerate(rows):
            stream.write((",\n" if number else "\n") + json.dumps(row, default=plain))
        stream.write("\n]\n")
        return
    writer = csv.DictWriter(stream, _SCHEMA.names)
    writer.writeheader()
    writer.writerows(map(_flat, rows))


def _write_parquet(rows: Iterator[dict[str, Any]], path: Path) -> None:
    with pq.ParquetWriter(path, _SCHEMA, compression="zstd") as writer:
        while group := list(islice(map(_flat, rows), _ROW_GROUP)):
            writer.write_table(pa.Table.from_pylist(group, _SCHEMA))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Key and value as text: a column has one type, keys and values have many."""
    key = row["key"]
    if isinstance(key, bytes):
        key = key.hex()
    elif not isinstance(key, str):
        key = json.dumps(key, default=plain)
    entry = None if row["entry"] is None else json.dumps(row["entry"], default=plain)
    return row | {"key": key, "value": json.dumps(row["value"], default=plain), "entry": entry}


@contextmanager
def _in_one_piece(output: Path) -> Iterator[Path]:
    partial = output.with_name(output.name + ".partial")
    try:
        yield partial
        partial.rename(output)
    finally:
        partial.unlink(missing_ok=True)
