"""Our partitioners against the real ones: Spark's ``hash`` and Kafka's ``Utils.murmur2``, in one JVM."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.partitioner import kafka_partition, spark_partition

pytestmark = pytest.mark.spark

ROWS = 400
CHARACTERS = "\0\1 aZ09-é€中😀\x7f\x80ÿ"


def _integers(rng: random.Random, bits: int) -> int:
    limit = 1 << (bits - 1)
    return rng.choice([0, 1, -1, limit - 1, -limit, rng.randrange(-limit, limit), rng.randrange(-100, 100)])


def random_part(name: str, rng: random.Random) -> Any:
    if name == "string":
        return "".join(rng.choices(CHARACTERS, k=rng.randrange(0, 20)))
    if name == "binary":
        return rng.randbytes(rng.randrange(0, 40))
    if name == "boolean":
        return rng.random() < 0.5
    return _integers(rng, {"byte": 8, "short": 16, "int": 32, "long": 64}[name])


@pytest.mark.parametrize("partitions", [1, 7, 12, 2**31 - 1])
@pytest.mark.parametrize(
    "types",
    [
        ("string",),
        ("binary",),
        ("boolean",),
        ("byte",),
        ("short",),
        ("int",),
        ("long",),
        ("string", "long"),
        ("long", "binary", "boolean"),
        ("short", "string", "int", "byte", "string"),
    ],
    ids="-".join,
)
def test_spark_partition_is_pmod_of_hash(spark: SparkSession, types: tuple[str, ...], partitions: int) -> None:
    rng = random.Random(f"{types} {partitions}")
    codec = KeyCodec(types)
    rows = [tuple(random_part(name, rng) for name in types) for _ in range(ROWS)]
    names = [f"c{index}" for index in range(len(types))]
    frame = spark.createDataFrame(rows, ", ".join(f"{n} {t}" for n, t in zip(names, types, strict=True)))
    assert KeyCodec.from_spark(field.dataType.simpleString() for field in frame.schema.fields) == codec
    hashed = frame.selectExpr(*names, f"pmod(hash({', '.join(names)}), {partitions}) AS p").collect()
    assert len(hashed) == ROWS
    for row in hashed:
        parts = tuple(bytes(part) if isinstance(part, bytearray) else part for part in row[:-1])
        key = parts if len(parts) > 1 else parts[0]
        assert spark_partition(key, codec, partitions) == row["p"], key


def test_repartition_agrees(spark: SparkSession) -> None:
    codec = KeyCodec(("string",))
    frame = spark.createDataFrame([(f"user-{index}",) for index in range(ROWS)], "k string")
    placed = frame.repartition(5, "k").selectExpr("k", "spark_partition_id() AS p").collect()
    assert {row["k"]: row["p"] for row in placed} == {row["k"]: spark_partition(row["k"], codec, 5) for row in placed}
    assert {row["p"] for row in placed} == set(range(5))


def test_kafka_partition_is_that_of_the_java_producer(spark: SparkSession) -> None:
    from changelog_state.broker.jars import spark_connector_jars

    context: Any = spark.sparkContext
    gateway, jvm = context._gateway, context._jvm
    jars = [jvm.java.io.File(jar).toURI().toURL() for jar in spark_connector_jars()]
    urls = gateway.new_array(jvm.java.net.URL, len(jars))
    for index, jar in enumerate(jars):
        urls[index] = jar
    # Spark's class loader is the parent: kafka-clients logs with Spark's slf4j.
    parent = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader = jvm.java.net.URLClassLoader(urls, parent)
    partitioner = loader.loadClass("org.apache.kafka.clients.producer.internals.BuiltInPartitioner")
    methods = [m for m in partitioner.getMethods() if m.getName() == "partitionForKey"]
    assert len(methods) == 1

    rng = random.Random("murmur2")
    keys = [bytes(range(size)) for size in range(9)]
    keys += [rng.randbytes(rng.randrange(0, 40)) for _ in range(ROWS)]
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    for partitions in (1, 12, 2**31 - 1):
        arguments[1] = partitions
        for key in keys:
            arguments[0] = key
            assert kafka_partition(key, partitions) == methods[0].invoke(None, arguments), key
    loader.close()
