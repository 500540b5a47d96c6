"""What every request of a batch carries, from the driver's plan to the owner's judgement."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["RequestHeader"]


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

    @classmethod
    def decode(cls, data: bytes) -> RequestHeader:
        return cls(**json.loads(data))
