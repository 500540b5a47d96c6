"""The frames between tasks and agents, and errors that keep their class over the wire."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from changelog_state import errors
from changelog_state.agent.transport import TLS_CA, TOKEN, on_executors
from changelog_state.changelog.writer import IndeterminateCommitError
from changelog_state.errors import AgentRefusedError, AgentUnavailableError, ChangelogStateError

__all__ = [
    "ANSWER_SCHEMA",
    "LOOKUP_SCHEMA",
    "REQUEST_SCHEMA",
    "StagedWorkLostError",
    "from_flight_error",
    "from_payload",
    "to_flight_error",
]

REQUEST_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("previous", pa.binary())])
"""Task → agent. GET: encoded keys only; READ: record keys only; SCAN: where ranges start, and in ``value`` where they
end. STAGE: record keys, new values (null deletes), and the values that this session was answered with (null: absent),
so that the owner need not read them a second time for its images. OUTPUT: keys, values and packed headers of records
for a topic."""

LOOKUP_SCHEMA = pa.schema([("key", pa.binary()), ("partition", pa.int32())])
"""Task → agent, about a global table: encoded keys, and the partition in which each is looked for first."""

ANSWER_SCHEMA = pa.schema([("row", pa.int32()), ("name", pa.int32()), ("value", pa.binary()), ("key", pa.binary())])
"""Agent → task: the values that exist, by row of the request. Answers to GET have the name, as an index into the
names of the metadata; those to SCAN and DUE have the record key."""


class StagedWorkLostError(ChangelogStateError):
    """The agent no longer has what a ticket refers to; the batch must run again."""


_NOT_TRUSTED = re.compile(r"certificate verify failed.*|Peer name \S+ is not in peer certificate")

_CLASSES: dict[str, type[ChangelogStateError]] = {
    **{name: getattr(errors, name) for name in errors.__all__},
    "StagedWorkLostError": StagedWorkLostError,
    "IndeterminateCommitError": IndeterminateCommitError,
}


def to_flight_error(error: Exception) -> flight.FlightServerError:
    """Ours by name; anything else is a defect of the agent and says so."""
    name = type(error).__name__ if isinstance(error, ChangelogStateError) else "ChangelogStateError"
    text = str(error) if isinstance(error, ChangelogStateError) else f"agent failed: {error!r}"
    payload: dict[str, Any] = {"class": name, "message": text}
    return flight.FlightServerError(text, extra_info=json.dumps(payload).encode())


def from_payload(payload: dict[str, str]) -> ChangelogStateError:
    return _CLASSES.get(payload["class"], ChangelogStateError)(payload["message"])


def from_flight_error(error: Exception, address: str) -> ChangelogStateError:
    extra = getattr(error, "extra_info", b"")
    if extra:
        return from_payload(json.loads(extra))
    first_line = str(error).splitlines()[0] if str(error) else repr(error)
    if isinstance(error, flight.FlightUnauthenticatedError):
        return AgentRefusedError(
            f"agent at {address} does not accept this process: its token is missing or not the agent's; set "
            f"{on_executors(TOKEN)} to the token that the agent was started with"
        )
    not_trusted = _NOT_TRUSTED.search(first_line)
    if not_trusted is not None:
        return AgentRefusedError(
            f"agent at {address} has a certificate that is not accepted here ({not_trusted[0]}); see that it is for "
            f"the host that the agent advertises, and set {on_executors(TLS_CA)} to the authority that has signed it"
        )
    return AgentUnavailableError(
        f"agent at {address} did not answer ({first_line}); look at its log in the state directory"
    )
