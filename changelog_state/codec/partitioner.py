"""Which partition a key belongs to, computed exactly as Spark or as Kafka's Java producer computes it."""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack_from
from typing import Any, Final

from changelog_state.codec.keys import KeyCodec
from changelog_state.errors import ConfigurationError, InvalidKeyError

__all__ = ["PARTITIONERS", "is_certain", "kafka_key_bytes", "kafka_partition", "partition_of", "spark_partition"]

_MASK: Final = 0xFFFFFFFF
_SPARK_SEED: Final = 42
_KAFKA_SEED: Final = 0x9747B28C
_KAFKA_M: Final = 0x5BD1E995


def partition_of(partitioner: str, key: Any, codec: KeyCodec, partitions: int) -> int:
    """The partition of a key under the partitioner of this name: "spark" or "kafka".

    With "-windows" behind it, the last column of the key is a window, which has no say.
    """
    try:
        function = PARTITIONERS[partitioner]
    except KeyError:
        raise ConfigurationError(
            f"there is no partitioner {partitioner!r}; use one of {', '.join(PARTITIONERS)}"
        ) from None
    return function(key, codec, partitions)


def is_certain(partitioner: str) -> bool:
    """Whether a key is where ``partition_of`` says. In source mode the topic's producers decide that."""
    return not partitioner.startswith("kafka")


def spark_partition(key: Any, codec: KeyCodec, partitions: int) -> int:
    """``pmod(hash(column, …), partitions)``: each column's hash is the seed of the next one's."""
    codec.encode(key)  # checks types and ranges
    columns = (key,) if len(codec.types) == 1 else key
    hashed = _SPARK_SEED
    for name, value in zip(codec.types, columns, strict=True):
        if name == "string":
            hashed = _spark_bytes(value.encode(), hashed)
        elif name == "binary":
            hashed = _spark_bytes(bytes(value), hashed)
        elif name == "long":
            hashed = _spark_long(int(value), hashed)
        else:
            hashed = _spark_int(int(value), hashed)
    return (hashed - ((hashed & 0x80000000) << 1)) % partitions


def kafka_partition(key_bytes: bytes, partitions: int) -> int:
    """What Kafka's Java producer does with a record's key: ``toPositive(murmur2(key)) % partitions``."""
    return (_murmur2(key_bytes) & 0x7FFFFFFF) % partitions


def kafka_key_bytes(key: Any, codec: KeyCodec) -> bytes:
    """The key as Kafka's Java serializers write it."""
    codec.encode(key)  # checks types and ranges
    if codec.types == ("string",):
        return bytes(key.encode())
    if codec.types == ("binary",):
        return bytes(key)
    if codec.types == ("int",):
        return int(key).to_bytes(4, "big", signed=True)
    if codec.types == ("long",):
        return int(key).to_bytes(8, "big", signed=True)
    raise InvalidKeyError(
        f"a key of ({', '.join(codec.types)}) has no Kafka key bytes; use one column of string, binary,"
        ' int or long, or partitioning="hash"'
    )


def _kafka(key: Any, codec: KeyCodec, partitions: int) -> int:
    return kafka_partition(kafka_key_bytes(key, codec), partitions)


def _without_window(function: Callable[[Any, KeyCodec, int], int]) -> Callable[[Any, KeyCodec, int], int]:
    """All windows of a key are where the key is."""

    def partition(key: Any, codec: KeyCodec, partitions: int) -> int:
        codec.encode(key)  # checks types and ranges
        return function(key[0] if len(key) == 2 else key[:-1], KeyCodec(codec.types[:-1]), partitions)

    return partition


PARTITIONERS: Final[dict[str, Callable[[Any, KeyCodec, int], int]]] = {
    "spark": spark_partition,
    "kafka": _kafka,
    "spark-windows": _without_window(spark_partition),
    "kafka-windows": _without_window(_kafka),
}


# --- Spark: Murmur3_x86_32. Every number here is 32 bits without a sign, as the hash needs no more.


def _spark_int(value: int, seed: int) -> int:
    return _finish(_mix(seed, value), 4)


def _spark_long(value: int, seed: int) -> int:
    return _finish(_mix(_mix(seed, value), value >> 32), 8)


def _spark_bytes(data: bytes, seed: int) -> int:
    size = len(data)
    words = size // 4
    for word in unpack_from(f"<{words}I", data):
        seed = _mix(seed, word)
    # NOTE: unlike Murmur3 elsewhere, each byte of the rest is a (signed) word of its own.
    for byte in data[words * 4 :]:
        seed = _mix(seed, byte if byte < 128 else byte - 256)
    return _finish(seed, size)


def _mix(seed: int, word: int) -> int:
    word = (word & _MASK) * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) * 0x1B873593 & _MASK
    seed ^= word
    return ((seed << 13 | seed >> 19) * 5 + 0xE6546B64) & _MASK


def _finish(hashed: int, size: int) -> int:
    hashed ^= size
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    return hashed ^ hashed >> 16


# --- Kafka: murmur2


def _murmur2(data: bytes) -> int:
    size = len(data)
    words = size // 4
    hashed = _KAFKA_SEED ^ size
    for word in unpack_from(f"<{words}I", data):
        word = word * _KAFKA_M & _MASK
        hashed = (hashed * _KAFKA_M ^ (word ^ word >> 24) * _KAFKA_M) & _MASK
    rest = data[words * 4 :]
    if rest:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _KAFKA_M & _MASK
    hashed = (hashed ^ hashed >> 13) * _KAFKA_M & _MASK
    return hashed ^ hashed >> 15
