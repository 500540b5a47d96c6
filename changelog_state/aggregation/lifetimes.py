"""Values that expire (see ``codec/expiring.py``), as whole columns."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.avro.record_codec import RecordCodec
from changelog_state.aggregation.avro.types import BYTES, LONG, Field, Record
from changelog_state.codec.expiring import EVENT_EXPIRING_HEADER, EXPIRING_HEADER

__all__ = ["expiring_values", "visible_values"]


def _codec(name: str) -> RecordCodec:
    return RecordCodec(Record(name, (Field("expires_ms", LONG), Field("value", BYTES))))


_BY_BATCH_TIME: Final = _codec("changelog_state.Expiring")
_BY_EVENT_TIME: Final = _codec("changelog_state.EventExpiring")
_HEADERS: Final = (EXPIRING_HEADER, EVENT_EXPIRING_HEADER)


def expiring_values(values: pa.Array, expires_ms: pa.Array, *, by_event_time: bool = False) -> pa.Array:
    """``expires_ms``: until when each of them lives, by batch time or by the watermark."""
    return (_BY_EVENT_TIME if by_event_time else _BY_BATCH_TIME).encode([expires_ms, values])


def visible_values(stored: pa.Array, now_ms: int, watermark_ms: int | None) -> pa.Array:
    """The values without their times, null where the time is over."""
    for codec, now in ((_BY_BATCH_TIME, now_ms), (_BY_EVENT_TIME, watermark_ms)):
        timed = pc.fill_null(codec.wrote(stored), False)
        if pc.any(timed).as_py():
            expires_ms, inner = codec.decode(stored.filter(timed))
            if now is not None:
                inner = pc.if_else(pc.greater(expires_ms, now), inner, pa.scalar(None, pa.binary()))
            stored = pc.replace_with_mask(stored, timed, inner)
    return stored
