"""``changelog-restore inspect``: what a store holds, without Kafka and without touching it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import bytes_text, print_json, print_table
from changelog_state.cli.target import Target, parse_key
from changelog_state.errors import ConfigurationError
from restore.cli.store import refuse_without_stores
from restore.export import Format, export
from restore.inspection import StoreView, entries_of_key, inspect_partition

__all__ = ["inspect"]

_COLUMNS = ("partition", "position", "last batch", "query", "values", "size", "caught up", "replayable")


@with_common_options
def inspect(
    common: Common,
    key: Annotated[
        list[str] | None, typer.Option(help="Show this key: text; JSON for numbers and tuples; hex for binary.")
    ] = None,
    sample: Annotated[int, typer.Option(min=0, help="Show so many values of each partition, taken at random.")] = 0,
    file_format: Annotated[
        Format | None, typer.Option("--format", help="Export all values instead: json, csv or parquet.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="The file to export to; else standard output.")] = None,
) -> None:
    """Show what the local stores hold: position, marker, schemas, sizes, counts, and values. Needs no Kafka.

    An export has one row per value: partition, key (text; JSON for numbers and several columns; hex for binary),
    name, value (as JSON text; in the json format key and value themselves), expires_ms. It is streamed, whatever the
    store's size.

    With --json: application, store, state_dir; partitions, each with partition, path, bytes, files, topic_id,
    position, caught_up_ms, caught_up, format, marker, claim, images (begin, complete), schemas (fingerprint, name),
    counts (per kind; local: what the changelog has not), sample (key, name, value, expires_ms), damage (or null);
    keys, each with key and found (partition, name, value, expires_ms). For an export: exported, format, output.
    """
    target = common.local_target()
    refuse_without_stores(target)
    if file_format is not None:
        _export(common, target, file_format, output)
        return
    if output is not None:
        raise ConfigurationError(f"--output {output} is given without --format; add --format json, csv or parquet")
    views = [inspect_partition(target.path(partition), partition, sample) for partition in target.partitions]
    document = {
        "application": target.application,
        "store": target.store,
        "state_dir": str(target.state_dir),
        "partitions": [view.to_json() for view in views],
        "keys": _keys(target, views, key or []),
    }
    if common.as_json:
        print_json(document)
    else:
        _print(document)


def _export(common: Common, target: Target, file_format: Format, output: Path | None) -> None:
    if output is None and (common.as_json or file_format is Format.PARQUET):
        raise ConfigurationError(f"an export as {file_format} needs --output FILE here")
    paths = {partition: target.path(partition) for partition in target.partitions}
    exported = export(paths, file_format, output)
    if common.as_json:
        print_json({"exported": exported, "format": str(file_format), "output": str(output)})
    elif output is not None:
        print(f"{exported:,} values written to {output}")


def _keys(target: Target, views: list[StoreView], wanted: list[str]) -> list[dict[str, Any]]:
    types = next((view.key_types for view in views if view.key_types is not None), None)
    found = []
    for text in wanted:
        parsed = parse_key(text, types)
        entries = [
            {"partition": partition, "name": entry.name, "value": entry.value, "expires_ms": entry.expires_ms}
            for partition in target.partitions
            for entry in entries_of_key(target.path(partition), types or ["string"], parsed)
        ]
        found.append({"key": parsed, "found": entries})
    return found


def _print(document: dict[str, Any]) -> None:
    print_table(_COLUMNS, (_cells(row) for row in document["partitions"]))
    schemas = {schema["fingerprint"]: schema["name"] for row in document["partitions"] for schema in row["schemas"]}
    for fingerprint, name in schemas.items():
        print(f"schema {fingerprint}: {name}")
    for row in document["partitions"]:
        if row["damage"] is not None:
            print(f"partition {row['partition']}: {row['damage']}")
        for entry in row["sample"]:
            print(f"partition {row['partition']}: " + _text(entry["key"], entry))
    for one in document["keys"]:
        for entry in one["found"]:
            print(f"partition {entry['partition']}: " + _text(one["key"], entry))
        if not one["found"]:
            print(f"no state for key {one['key']!r}")


def _text(key: Any, entry: dict[str, Any]) -> str:
    until = f" (until {entry['expires_ms']})" if entry["expires_ms"] is not None else ""
    return f"{key!r} {entry['name']} = {entry['value']!r}{until}"


def _cells(row: dict[str, Any]) -> list[object]:
    marker, images = row["marker"], row["images"]
    return [
        row["partition"],
        row["position"],
        marker and marker["batch"],
        marker and marker["query"],
        row["counts"].get("data"),
        bytes_text(row["bytes"]),
        row["caught_up"],
        images and ("yes" if images["complete"] else "no"),
    ]
