"""What requests of tasks carry: of a batch, from the driver's plan to the owner's judgement; of a look-up."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["LookupRequest", "RequestHeader", "decode_request"]


@dataclass(frozen=True)
class RequestHeader:
    """Judged against the partition at the moment of the request, never by what was true earlier."""

    application: str
    store: str
    partition: int
    epoch: int
    claim: int
    query: str
    batch: int
    token: str

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class LookupRequest:
    """Which global table is looked into. Whoever follows it answers, whatever batch is running."""

    application: str
    table: str
    topic: str

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def decode_request(data: bytes) -> RequestHeader | LookupRequest:
    fields = json.loads(data)
    return LookupRequest(**fields) if "table" in fields else RequestHeader(**fields)
