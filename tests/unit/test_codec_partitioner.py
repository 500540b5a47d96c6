from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.partitioner import (
    PARTITIONERS,
    is_certain,
    kafka_key_bytes,
    kafka_partition,
    partition_of,
    spark_partition,
)
from changelog_state.errors import ConfigurationError, InvalidKeyError

STRING = KeyCodec(("string",))


@pytest.mark.parametrize(
    ("key", "murmur2"),
    [
        # Kafka's own org.apache.kafka.common.utils.UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_kafka_partition(key: bytes, murmur2: int) -> None:
    positive = murmur2 & 0x7FFFFFFF
    assert kafka_partition(key, 1 << 31) == positive
    assert kafka_partition(key, 12) == positive % 12
    assert kafka_partition(key, 1) == 0


@pytest.mark.parametrize(
    ("types", "key", "expected"),
    [
        # What SELECT hash(…) gives in Spark 4.0.
        (("string",), "Spark", 228093765),
        (("string",), "", 142593372),
        (("string",), "é", 2119106806),
        (("binary",), b"\xff\x00", 266084350),
        (("boolean",), True, -559580957),
        (("byte",), -1, -1604776387),
        (("short",), 1, -559580957),
        (("int",), 1, -559580957),
        (("long",), 1, -1712319331),
        (("long",), -5, 424949597),
        (("string", "long"), ("a", 1), 1838122449),
    ],
)
def test_spark_partition(types: tuple[str, ...], key: Any, expected: int) -> None:
    codec = KeyCodec(types)
    assert spark_partition(key, codec, 1 << 32) == expected % (1 << 32)
    assert spark_partition(key, codec, 7) == expected % 7


@pytest.mark.parametrize(
    ("types", "key", "expected"),
    [
        (("string",), "é\0", b"\xc3\xa9\x00"),
        (("binary",), b"\x00\x01", b"\x00\x01"),
        (("int",), -2, b"\xff\xff\xff\xfe"),
        (("long",), 1, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
        (("long",), np.int64(1), b"\x00\x00\x00\x00\x00\x00\x00\x01"),
    ],
)
def test_kafka_key_bytes_are_those_of_the_java_serializers(types: Any, key: Any, expected: bytes) -> None:
    assert kafka_key_bytes(key, KeyCodec(types)) == expected


@pytest.mark.parametrize(
    ("types", "key"),
    [(("boolean",), True), (("short",), 1), (("byte",), 1), (("string", "string"), ("a", "b"))],
)
def test_other_keys_have_no_kafka_bytes(types: Any, key: Any) -> None:
    with pytest.raises(InvalidKeyError, match="has no Kafka key bytes; use one column of string"):
        kafka_key_bytes(key, KeyCodec(types))


def test_partition_of() -> None:
    assert set(PARTITIONERS) == {"spark", "kafka", "spark-windows", "kafka-windows"}
    assert partition_of("spark", "Spark", STRING, 5) == 228093765 % 5
    assert partition_of("kafka", "abc", STRING, 5) == 479470107 % 5
    with pytest.raises(ConfigurationError, match="no partitioner 'round-robin'; use one of spark, kafka"):
        partition_of("round-robin", "a", STRING, 5)


def test_windows_are_where_their_key_is() -> None:
    for partitioner in ("spark", "kafka"):
        windows = f"{partitioner}-windows"
        expected = partition_of(partitioner, "abc", STRING, 500)
        assert partition_of(windows, ("abc", 7), KeyCodec(("string", "long")), 500) == expected
        with pytest.raises(InvalidKeyError):
            partition_of(windows, "abc", KeyCodec(("string", "long")), 500)
    pair = KeyCodec(("string", "int"))
    triple = KeyCodec(("string", "int", "long"))
    assert partition_of("spark-windows", ("abc", 1, 7), triple, 500) == partition_of("spark", ("abc", 1), pair, 500)
    assert [is_certain(each) for each in PARTITIONERS] == [True, False, True, False]


@pytest.mark.parametrize("partitioner", ["spark", "kafka"])
@pytest.mark.parametrize("key", [None, 1, "\ud800"])
def test_a_key_that_is_none_has_no_partition(partitioner: str, key: Any) -> None:
    with pytest.raises(InvalidKeyError):
        partition_of(partitioner, key, STRING, 5)
