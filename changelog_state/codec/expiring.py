"""A value with the time until which it is visible: an encoded value inside a record of its own."""

from __future__ import annotations

from changelog_state.codec.avro import SingleObjectCodec

__all__ = ["EXPIRING_CODEC"]

EXPIRING_CODEC = SingleObjectCodec(
    {
        "type": "record",
        "name": "changelog_state.Expiring",
        "fields": [{"name": "expires_ms", "type": "long"}, {"name": "value", "type": "bytes"}],
    }
)
