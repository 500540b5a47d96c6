"""A task's conversation with the owner of its partition."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from changelog_state.agent.messages import REQUEST_SCHEMA
from changelog_state.requests import RequestHeader
from changelog_state.task.exchange import Exchange

__all__ = ["Session"]

_GET = b'{"verb":"get"}'
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

    def stage(self, keys: list[bytes], values: list[bytes | None], previous: list[bytes | None]) -> None:
        """Record keys in ascending order, their new values, and what ``get`` gave for them."""
        self._send([pa.array(column, pa.binary()) for column in (keys, values, previous)], _STAGE)

    def seal(self, names: Iterable[str]) -> dict[str, Any]:
        """Everything was staged; answers with the stage's id, digest and number of records."""
        try:
            self._writer.write_metadata(json.dumps({"verb": "seal", "names": sorted(names)}).encode())
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._lost(error) from error
        return json.loads(self._receive().app_metadata.to_pybytes())  # type: ignore[no-any-return]
