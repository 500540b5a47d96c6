"""Values that expire.

Expiry is a filter on the time of the reader: the batch time inside a batch (the same when it is replayed), the
clock outside.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from changelog_state.codec.avro import decode_value, encode_value
from changelog_state.codec.expiring import EXPIRING_CODEC
from changelog_state.errors import ValueEncodingError

__all__ = ["ABSENT", "decode_visible", "encode_expiring", "ttl_ms"]

ABSENT = object()


def encode_expiring(value: Any, expires_ms: int) -> bytes:
    return EXPIRING_CODEC.encode({"expires_ms": expires_ms, "value": encode_value(value)})


def decode_visible(data: bytes | None, now_ms: int) -> Any:
    """The value, or ``ABSENT`` if there is none any more."""
    if data is None:
        return ABSENT
    if not data.startswith(EXPIRING_CODEC.header):
        return decode_value(data)
    expiring = EXPIRING_CODEC.decode(data)
    return ABSENT if expiring["expires_ms"] <= now_ms else decode_value(expiring["value"])


def ttl_ms(ttl: float | timedelta) -> int:
    """A time to live in milliseconds; plain numbers are seconds."""
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ValueEncodingError(f"ttl is {ttl!r}; give seconds or a timedelta greater than zero")
    return int(seconds * 1000)
