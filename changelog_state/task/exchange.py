"""One Flight exchange with an agent: messages go out, answers come in, and a wait for an agent that is gone ends."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from changelog_state.agent.client import AgentClient
from changelog_state.agent.messages import from_flight_error
from changelog_state.agent.transport import call_options, connect
from changelog_state.errors import ChangelogStateError
from changelog_state.task.watchdog import watchdog

__all__ = ["Exchange"]

_LONGEST_SECONDS = 24 * 3600.0
_clients: dict[tuple[int, str], flight.FlightClient] = {}


class Exchange:
    def __init__(self, address: str, command: bytes, schema: pa.Schema) -> None:
        self._address = address
        self._schema = schema
        client = _clients.get((os.getpid(), address))
        if client is None:
            client = _clients[os.getpid(), address] = connect(address)
        descriptor = flight.FlightDescriptor.for_command(command)
        try:
            self._writer, self._reader = client.do_exchange(descriptor, call_options(address, _LONGEST_SECONDS))
            self._writer.begin(schema)
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """End the exchange."""
        # A stream that failed says so again when it is closed; that failure has been raised already.
        with contextlib.suppress(flight.FlightError, pa.ArrowException, OSError):
            self._writer.close()

    def _send(self, columns: list[pa.Array], verb: bytes) -> None:
        batch = pa.record_batch(columns, schema=self._schema)
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

    def _receive_values(self, asked: int) -> list[dict[str, bytes]]:
        """An answer to a request for so many keys: of each, the names and values that exist."""
        found: list[dict[str, bytes]] = [{} for _ in range(asked)]
        chunk = self._receive()
        names = json.loads(chunk.app_metadata.to_pybytes())
        rows, name_indexes, values = (column.to_pylist() for column in chunk.data.columns[:3])
        if len(names) == 1:
            name = names[0]
            for row, value in zip(rows, values, strict=True):
                found[row][name] = value
        else:
            for row, index, value in zip(rows, name_indexes, values, strict=True):
                found[row][names[index]] = value
        return found

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
