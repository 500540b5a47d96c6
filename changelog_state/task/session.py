"""A task's conversation with the owner of its partition."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from changelog_state.agent.client import AgentClient
from changelog_state.agent.messages import REQUEST_SCHEMA, from_flight_error
from changelog_state.agent.transport import call_options, connect
from changelog_state.errors import ChangelogStateError
from changelog_state.requests import RequestHeader
from changelog_state.task.watchdog import watchdog

__all__ = ["Session"]

_GET = b'{"verb":"get"}'
_STAGE = b'{"verb":"stage"}'
_LONGEST_SECONDS = 24 * 3600.0
_clients: dict[tuple[int, str], flight.FlightClient] = {}


class Session:
    """One exchange. Nothing is staged unless ``seal`` has answered."""

    def __init__(self, address: str, header: RequestHeader) -> None:
        self._address = address
        client = _clients.get((os.getpid(), address))
        if client is None:
            client = _clients[os.getpid(), address] = connect(address)
        descriptor = flight.FlightDescriptor.for_command(header.encode())
        try:
            self._writer, self._reader = client.do_exchange(descriptor, call_options(address, _LONGEST_SECONDS))
            self._writer.begin(REQUEST_SCHEMA)
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """End the exchange. Whatever was not sealed is dropped by the owner."""
        # A stream that failed says so again when it is closed; that failure has been raised already.
        with contextlib.suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.close()

    def get(self, keys: list[bytes]) -> list[dict[str, bytes]]:
        """Per key, the stored names and values from before this batch."""
        found: list[dict[str, bytes]] = [{} for _ in keys]
        nothing = pa.nulls(len(keys), pa.binary())
        self._send(pa.array(keys, pa.binary()), nothing, nothing, _GET)
        chunk = self._receive()
        names = json.loads(chunk.app_metadata.to_pybytes())
        rows, name_indexes, values = (column.to_pylist() for column in chunk.data.columns)
        if len(names) == 1:
            name = names[0]
            for row, value in zip(rows, values, strict=True):
                found[row][name] = value
        else:
            for row, index, value in zip(rows, name_indexes, values, strict=True):
                found[row][names[index]] = value
        return found

    def stage(self, keys: list[bytes], values: list[bytes | None], previous: list[bytes | None]) -> None:
        """Record keys in ascending order, their new values, and what ``get`` gave for them."""
        columns = [pa.array(column, pa.binary()) for column in (keys, values, previous)]
        self._send(columns[0], columns[1], columns[2], _STAGE)

    def seal(self, names: Iterable[str]) -> dict[str, Any]:
        """Everything was staged; answers with the stage's id, digest and number of records."""
        try:
            self._writer.write_metadata(json.dumps({"verb": "seal", "names": sorted(names)}).encode())
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._lost(error) from error
        return json.loads(self._receive().app_metadata.to_pybytes())  # type: ignore[no-any-return]

    def _send(self, keys: pa.Array, values: pa.Array, previous: pa.Array, verb: bytes) -> None:
        batch = pa.record_batch([keys, values, previous], schema=REQUEST_SCHEMA)
        try:
            with self._watched():
                self._writer.write_with_metadata(batch, verb)
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._lost(error) from error

    def _receive(self) -> Any:
        try:
            with self._watched():
                return self._reader.read_chunk()
        except (flight.FlightError, pa.ArrowException, OSError, StopIteration) as error:
            raise self._lost(error) from error

    def _watched(self) -> contextlib.AbstractContextManager[None]:
        return watchdog(_check).watching(self._address, self._reader.cancel)

    def _lost(self, error: BaseException) -> ChangelogStateError:
        """A failed write only says that the stream is broken; the reason is on the other side of it."""
        if isinstance(error, Exception) and not getattr(error, "extra_info", b"") and hasattr(self, "_reader"):
            try:
                self._reader.read_chunk()
            except (flight.FlightError, pa.ArrowException, OSError) as reason:
                return from_flight_error(reason, self._address)
            except StopIteration:
                pass
        return from_flight_error(error, self._address)  # type: ignore[arg-type]


def _check(address: str) -> None:
    """Over a connection of its own: the one that is waited on may be the one that is broken."""
    client = AgentClient(address)
    try:
        client.check()
    finally:
        client.close()
