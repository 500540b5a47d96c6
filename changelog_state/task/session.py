"""A task's conversation with the owner of its partition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from changelog_state.agent.messages import REQUEST_SCHEMA
from changelog_state.requests import RequestHeader
from changelog_state.task.exchange import Exchange

__all__ = ["Session"]

_GET = b'{"verb":"get"}'
_READ = b'{"verb":"read"}'
_STAGE = b'{"verb":"stage"}'


class Session(Exchange):
    """One exchange. Nothing is staged unless ``seal`` has answered; else the owner drops it at the end."""

    def __init__(self, address: str, header: RequestHeader) -> None:
        super().__init__(address, header.encode(), REQUEST_SCHEMA)

    def get(self, keys: list[bytes]) -> list[dict[str, bytes]]:
        """Per key, the stored names and values from before this batch."""
        nothing = pa.nulls(len(keys), pa.binary())
        self._send([pa.array(keys, pa.binary()), nothing, nothing], _GET)
        return self._receive_values(len(keys))

    def read(self, record_keys: list[bytes]) -> list[bytes | None]:
        """Records from before this batch."""
        nothing = pa.nulls(len(record_keys), pa.binary())
        self._send([pa.array(record_keys, pa.binary()), nothing, nothing], _READ)
        rows, values, _ = self._receive_records()
        found: list[bytes | None] = [None] * len(record_keys)
        for row, value in zip(rows, values, strict=True):
            found[row] = value
        return found

    def scan_many(self, ranges: list[tuple[bytes, bytes]], limit: int) -> list[list[tuple[bytes, bytes]]]:
        """Per range [start, end), its first records from before this batch, at most ``limit``."""
        starts, ends = zip(*ranges, strict=True)
        columns = [pa.array(starts, pa.binary()), pa.array(ends, pa.binary()), pa.nulls(len(ranges), pa.binary())]
        self._send(columns, json.dumps({"verb": "scan", "limit": limit}).encode())
        found: list[list[tuple[bytes, bytes]]] = [[] for _ in ranges]
        for row, value, key in zip(*self._receive_records(), strict=True):
            found[row].append((key, value))
        return found

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return self.scan_many([(start, end)], limit)[0]

    def due(
        self, now_ms: int, watermark_ms: int | None, most_timers: int, most_expired: int
    ) -> list[tuple[bytes, bytes]]:
        """Timers that are due and values that have expired, at most so many by each clock: the earliest."""
        request = {
            "verb": "due",
            "now_ms": now_ms,
            "watermark_ms": watermark_ms,
            "most_timers": most_timers,
            "most_expired": most_expired,
        }
        self._send([pa.nulls(0, pa.binary())] * 3, json.dumps(request).encode())
        _, values, keys = self._receive_records()
        return list(zip(keys, values, strict=True))

    def stage(self, keys: list[bytes], values: list[bytes | None], previous: list[bytes | None]) -> None:
        """Record keys in ascending order, their new values, and what ``get`` gave for them."""
        self._send([pa.array(column, pa.binary()) for column in (keys, values, previous)], _STAGE)

    def read_columns(self, record_keys: pa.Array) -> pa.Array:
        """Like ``read``, from a binary array to another one."""
        nothing = pa.nulls(len(record_keys), pa.binary())
        self._send([record_keys, nothing, nothing], _READ)
        rows, _, values, _ = self._receive().data.columns
        if len(rows) == len(record_keys):
            return values
        places = np.full(len(record_keys), -1)
        places[rows.to_numpy()] = np.arange(len(rows))
        return values.take(pa.array(places, mask=places < 0))

    def stage_columns(self, keys: pa.Array, values: pa.Array, previous: pa.Array) -> None:
        """Like ``stage``, from binary arrays."""
        self._send([keys, values, previous], _STAGE)

    def output(self, topic: str, keys: pa.Array, values: pa.Array, headers: pa.Array) -> None:
        """Records for a topic, in their order; they become part of the batch with what is staged."""
        self._send([keys, values, headers], json.dumps({"verb": "output", "topic": topic}).encode())

    def seal(self, names: Iterable[str], schemas: Mapping[bytes, str] | None = None) -> dict[str, Any]:
        """Everything was staged; answers with the stage's id, digest and numbers of records.

        ``names``: of all values that were staged; ``schemas``: those they were written with, by fingerprint.
        """
        with_names = {fingerprint.hex(): schema for fingerprint, schema in (schemas or {}).items()}
        message = {"verb": "seal", "names": sorted(names), "schemas": with_names}
        try:
            self._writer.write_metadata(json.dumps(message).encode())
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._lost(error) from error
        return json.loads(self._receive().app_metadata.to_pybytes())  # type: ignore[no-any-return]

    def _receive_records(self) -> tuple[list[int], list[bytes], list[bytes]]:
        rows, _, values, keys = (column.to_pylist() for column in self._receive().data.columns)
        return rows, values, keys
