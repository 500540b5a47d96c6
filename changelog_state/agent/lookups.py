"""One session of look-ups in a global table: keys come in as Arrow, what they have goes out."""

from __future__ import annotations

import json
from typing import Any

import pyarrow.flight as flight

from changelog_state.agent.messages import ANSWER_SCHEMA
from changelog_state.agent.tables import Tables
from changelog_state.requests import LookupRequest

__all__ = ["serve_lookups"]


def serve_lookups(tables: Tables, request: LookupRequest, reader: Any, writer: Any) -> None:
    """First what has to be known of the table to ask for anything; then answers, until the other side ends it."""
    table = tables.table(request)
    writer.begin(ANSWER_SCHEMA)
    writer.write_metadata(json.dumps(table.describe()).encode())
    for chunk in reader:
        message = json.loads(chunk.app_metadata.to_pybytes())
        if message["verb"] == "get":
            keys, places = (column.to_pylist() for column in chunk.data.columns)
            found = table.find(keys, places, anywhere=message["anywhere"])
            writer.write_with_metadata(found.to_arrow(), json.dumps(found.names).encode())
        elif message["verb"] == "schema":
            schema = table.schema(message["name"], bytes.fromhex(message["fingerprint"]))
            writer.write_metadata(json.dumps({"schema": schema}).encode())
        else:
            raise flight.FlightServerError(f"unknown verb {message['verb']!r}")
