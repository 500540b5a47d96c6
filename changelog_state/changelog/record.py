"""Records that are not user state: markers and claims in the changelog, epochs and batches in the control topic.

All are Avro single-object encoded; docs/FORMAT.md describes each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from changelog_state.codec.avro import JSON_CODEC, SingleObjectCodec
from changelog_state.codec.entries import LIST_CODEC, MAP_CODEC
from changelog_state.codec.kinds import SCHEMA
from changelog_state.codec.timed import EVENT_EXPIRING_CODEC, EXPIRING_CODEC, REFRESHED_CODEC, TIMER_CODEC
from changelog_state.config import FORMAT_VERSION, StoreConfig

__all__ = ["AvroRecord", "BatchRecord", "Claim", "Epoch", "Marker", "StoreIdentity", "schema_records"]

_NULLABLE_STRING = ["null", "string"]


class AvroRecord:
    _codec: ClassVar[SingleObjectCodec]
    _earlier: ClassVar[tuple[SingleObjectCodec, ...]] = ()
    """With which versions before this one wrote: fields that have come since have a default."""

    def encode(self) -> bytes:
        return self._codec.encode(asdict(self))  # type: ignore[call-overload]

    @classmethod
    def decode(cls, data: bytes) -> Self:
        for codec in cls._earlier:
            if data.startswith(codec.header):
                return cls(**codec.decode(data))
        return cls(**cls._codec.decode(data))


@dataclass(frozen=True)
class Marker(AvroRecord):
    """The last record of a batch's transaction in one partition: this batch is in the state."""

    query: str
    batch: int
    epoch: int
    begin: int
    """The first offset that can belong to this batch."""
    records: int
    mutations: bytes
    """Digest of (key, new value): tells whether a replay computed the same."""
    images: bytes
    """Digest of (key, previous value): tells whether rebuilt before-images are the real ones."""
    names: list[str] | None
    """Every state name in this partition; None: too many to list."""
    time_ms: int

    _codec = SingleObjectCodec(
        {
            "type": "record",
            "name": "changelog_state.Marker",
            "fields": [
                {"name": "query", "type": "string"},
                {"name": "batch", "type": "long"},
                {"name": "epoch", "type": "long"},
                {"name": "begin", "type": "long"},
                {"name": "records", "type": "long"},
                {"name": "mutations", "type": "bytes"},
                {"name": "images", "type": "bytes"},
                {"name": "names", "type": ["null", {"type": "array", "items": "string"}]},
                {"name": "time_ms", "type": "long"},
            ],
        }
    )


_IDENTITY_FIELDS = [
    {"name": "application", "type": "string"},
    {"name": "store", "type": "string"},
    {"name": "partitions", "type": "long"},
    {"name": "partitioner", "type": "string"},
    {"name": "key_types", "type": {"type": "array", "items": "string"}},
    {"name": "format", "type": "long"},
]


@dataclass(frozen=True)
class StoreIdentity:
    """What a store is for ever: recorded with every claim and epoch, and verified on use."""

    application: str
    store: str
    partitions: int
    partitioner: str
    key_types: list[str]
    format: int = FORMAT_VERSION

    @classmethod
    def of(cls, config: StoreConfig, partitioner: str, key_types: list[str]) -> Self:
        return cls(config.application, config.store, config.partitions, partitioner, key_types)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**{name: fields[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Claim(AvroRecord):
    """A partition was taken by an agent on behalf of a driver. Its offset is the claim number."""

    epoch: int
    agent: str
    incarnation: str
    time_ms: int
    application: str
    store: str
    partitions: int
    partitioner: str
    key_types: list[str]
    format: int

    _codec = SingleObjectCodec(
        {
            "type": "record",
            "name": "changelog_state.Claim",
            "fields": [
                {"name": "epoch", "type": "long"},
                {"name": "agent", "type": "string"},
                {"name": "incarnation", "type": "string"},
                {"name": "time_ms", "type": "long"},
                *_IDENTITY_FIELDS,
            ],
        }
    )


@dataclass(frozen=True)
class Epoch(AvroRecord):
    """A driver has taken the store; every driver with a lower epoch is refused from now on."""

    epoch: int
    driver: str
    time_ms: int
    application: str
    store: str
    partitions: int
    partitioner: str
    key_types: list[str]
    format: int

    _codec = SingleObjectCodec(
        {
            "type": "record",
            "name": "changelog_state.Epoch",
            "fields": [
                {"name": "epoch", "type": "long"},
                {"name": "driver", "type": "string"},
                {"name": "time_ms", "type": "long"},
                *_IDENTITY_FIELDS,
            ],
        }
    )


def _batch_codec(*more: dict[str, Any]) -> SingleObjectCodec:
    return SingleObjectCodec(
        {
            "type": "record",
            "name": "changelog_state.Batch",
            "fields": [
                {"name": "query", "type": "string"},
                {"name": "batch", "type": "long"},
                {"name": "epoch", "type": "long"},
                {"name": "batch_time_ms", "type": "long"},
                {"name": "watermark_before_ms", "type": ["null", "long"]},
                {"name": "watermark_after_ms", "type": ["null", "long"]},
                {"name": "offsets_hash", "type": _NULLABLE_STRING},
                {"name": "adopted_epoch", "type": ["null", "long"]},
                *more,
            ],
        }
    )


@dataclass(frozen=True)
class BatchRecord(AvroRecord):
    """What a replay of the batch must find unchanged."""

    query: str
    batch: int
    epoch: int
    batch_time_ms: int
    watermark_before_ms: int | None
    watermark_after_ms: int | None
    offsets_hash: str | None
    adopted_epoch: int | None
    """The epoch at which this query took the state over from another one."""
    late_watermark_ms: int | None = None
    """Before the batch before this one: by it Spark's operators judge which rows are late."""

    _codec = _batch_codec({"name": "late_watermark_ms", "type": ["null", "long"], "default": None})
    _earlier = (_batch_codec(),)


def schema_records() -> list[tuple[bytes, bytes]]:
    """The schemas of everything that a changelog holds, so that it explains itself."""
    codecs = (
        JSON_CODEC,
        EXPIRING_CODEC,
        EVENT_EXPIRING_CODEC,
        REFRESHED_CODEC,
        LIST_CODEC,
        MAP_CODEC,
        TIMER_CODEC,
        Marker._codec,
        Claim._codec,
    )
    return [(SCHEMA + codec.fingerprint, codec.schema_json.encode()) for codec in codecs]
