"""What a function is given, what it may store, and what comes back."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

import changelog_state as cs
from tests.support.stream import SCHEMA, Input, Job, count

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def users_frame(spark: Any, users: list[str]) -> Any:
    return spark.createDataFrame([(user,) for user in users], "user_id string")


def rows_of(result: Any) -> dict[Any, Any]:
    return {bytes(row[0]) if isinstance(row[0], bytearray) else row[0]: row[1] for row in result.collect()}


def counted(service: cs.StateService, spark: Any, batch: int, users: list[str]) -> dict[str, int]:
    return rows_of(service.apply(users_frame(spark, users), batch, count, key="user_id", schema=SCHEMA))


def test_state_goes_on_from_batch_to_batch(spark: Any, make_service: Any) -> None:
    service = make_service()
    assert counted(service, spark, 0, ["a", "b", "a"]) == {"a": 2, "b": 1}
    assert counted(service, spark, 1, ["a", "c"]) == {"a": 3, "c": 1}
    assert service.get("a", "total") == 3
    assert service.get("nobody", "total") is None
    assert service.get("nobody", "total", default=7) == 7
    assert service.get_all("c") == {"total": 1}
    assert list(service.scan()) == [("a", {"total": 3}), ("b", {"total": 1}), ("c", {"total": 1})]


def test_a_new_service_finds_the_state(spark: Any, make_service: Any) -> None:
    first = make_service()
    counted(first, spark, 0, ["a"])
    first.close()
    assert counted(make_service(), spark, 1, ["a"]) == {"a": 2}


def test_a_replay_gives_the_same_rows_and_changes_nothing(spark: Any, make_service: Any) -> None:
    service = make_service()
    counted(service, spark, 0, ["a", "b"])
    first = counted(service, spark, 1, ["a", "a", "c"])
    assert counted(make_service(), spark, 1, ["a", "a", "c"]) == first == {"a": 3, "c": 1}
    assert dict(service.scan()) == {"a": {"total": 3}, "b": {"total": 1}, "c": {"total": 1}}


def test_the_result_evaluated_twice_or_never(spark: Any, make_service: Any) -> None:
    service = make_service()
    frame = users_frame(spark, ["a", "b", "a"])
    service.apply(frame, 0, count, key="user_id", schema=SCHEMA)  # never
    result = service.apply(frame, 1, count, key="user_id", schema=SCHEMA)
    assert rows_of(result) == rows_of(result) == {"a": 4, "b": 2}
    assert result.columns == ["user_id", "total"]
    assert service.get("a", "total") == 4


def test_the_result_recomputed_by_spark_is_the_same(spark: Any, make_service: Any) -> None:
    service = make_service()
    counted(service, spark, 0, ["a", "b"])
    result = service.apply(users_frame(spark, ["a", "b", "b"]), 1, count, key="user_id", schema=SCHEMA)
    service._results[0].unpersist(blocking=True)  # as when an executor is lost with its cached rows
    assert rows_of(result) == {"a": 2, "b": 3}
    assert dict(service.scan()) == {"a": {"total": 2}, "b": {"total": 3}}


def test_an_old_result_that_must_be_recomputed_is_an_error(spark: Any, make_service: Any) -> None:
    service = make_service()
    old = service.apply(users_frame(spark, ["a"]), 0, count, key="user_id", schema=SCHEMA)
    counted(service, spark, 1, ["a"])
    with pytest.raises(PySparkException, match="BatchSupersededError.*inside its own batch"):
        old.collect()


def test_keys_of_every_type(spark: Any, make_service: Any) -> None:
    cases: dict[str, list[Any]] = {
        "string": ["", "a", "ä\x00z", "\U0001f600"],
        "binary": [b"", b"\x00", b"\x00\xff", b"abc"],
        "int": [0, -1, 2**31 - 1, -(2**31)],
        "long": [0, -1, 2**63 - 1, -(2**63)],
        "boolean": [True, False],
    }
    for kind, keys in cases.items():
        service = make_service(store=f"keys-{kind}")
        frame = spark.createDataFrame([(key,) for key in keys for _ in range(2)], f"k {kind}")
        for batch in range(2):
            result = service.apply(frame, batch, count_any, key="k", schema=f"k {kind}, total long")
            assert rows_of(result) == dict.fromkeys(keys, 2 * (batch + 1))
        assert [service.get(key, "total") for key in keys] == [4] * len(keys)
        assert [key for key, _ in service.scan()] == sorted(keys)
        service.close()


def count_any(key: Any, rows: list[dict[str, Any]], state: cs.State) -> Any:
    total = state.get("total", default=0) + len(rows)
    state.set("total", total)
    yield {"k": key, "total": total}


def test_keys_of_several_columns(spark: Any, make_service: Any) -> None:
    def by_pair(key: Any, rows: Any, state: cs.State) -> Any:
        assert key == (rows[0]["shop"], rows[0]["sku"])
        total = state.get("n", default=0) + len(rows)
        state.set("n", total)
        yield {"shop": key[0], "sku": key[1], "n": total}

    service = make_service()
    frame = spark.createDataFrame([("x", 1), ("x", 2), ("y", 1), ("x", 1)], "shop string, sku long")
    for batch in range(2):
        result = service.apply(frame, batch, by_pair, key=["shop", "sku"], schema="shop string, sku long, n long")
        assert {(r.shop, r.sku): r.n for r in result.collect()} == {
            ("x", 1): 2 * (batch + 1),
            ("x", 2): batch + 1,
            ("y", 1): batch + 1,
        }
    assert service.get(("x", 1), "n") == 4
    assert [key for key, _ in service.scan(prefix=("x",))] == [("x", 1), ("x", 2)]


VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "big": 2**200,
    "negative": -(2**63),
    "float": 0.1,
    "infinite": -math.inf,
    "empty": "",
    "unicode": "größe \U0001f600",
    "bytes": b"\x00\xff",
    "list": [1, [2, None], {"a": b"x"}],
    "dict": {"": 0, "nested": {"deep": [True]}},
}


def test_values_of_every_kind_come_back_as_they_were(spark: Any, make_service: Any) -> None:
    def store(key: str, rows: Any, state: cs.State) -> Any:
        for name, value in VALUES.items():
            if state.exists(name):
                assert state.get(name) == value
                assert type(state.get(name)) is type(value)
            state.set(name, value)
        state.set("nan", math.nan)
        seen = dict(state.items())
        assert math.isnan(seen.pop("nan"))
        assert seen == VALUES
        yield {"user_id": key, "total": len(seen)}

    service = make_service()
    for batch in range(2):
        result = service.apply(users_frame(spark, ["a"]), batch, store, key="user_id", schema=SCHEMA)
        assert rows_of(result) == {"a": len(VALUES)}
    found = service.get_all("a")
    assert math.isnan(found.pop("nan"))
    assert found == VALUES
    assert service.get("a", "none", default="absent") is None  # None is a value


def test_reads_see_the_functions_own_writes(spark: Any, make_service: Any) -> None:
    def write_and_read(key: str, rows: Any, state: cs.State) -> Any:
        assert not state.exists("x")
        state.set("x", [1])
        state.get("x").append(2)  # a copy: this does not count
        assert state.get("x") == [1]
        state.delete("x")
        assert state.get("x", default="gone") == "gone"
        state.set("kept", 1)
        yield {"user_id": key, "total": len(list(state.items()))}

    service = make_service()
    result = service.apply(users_frame(spark, ["a"]), 0, write_and_read, key="user_id", schema=SCHEMA)
    assert rows_of(result) == {"a": 1}
    assert service.get_all("a") == {"kept": 1}


def test_ttl_hides_a_value_after_its_time(spark: Any, make_service: Any) -> None:
    def expiring(key: str, rows: Any, state: cs.State) -> Any:
        seen = state.get("short", default=0)
        state.set("short", seen + 1, ttl=0.001)
        state.set("long", state.get("long", default=0) + 1, ttl=3600)
        yield {"user_id": key, "total": seen}

    service = make_service()
    for batch in range(2):
        result = service.apply(users_frame(spark, ["a"]), batch, expiring, key="user_id", schema=SCHEMA)
        assert rows_of(result) == {"a": 0}
    assert service.get_all("a") == {"long": 2}


def test_an_empty_batch_and_one_that_changes_nothing(spark: Any, make_service: Any) -> None:
    service = make_service()
    counted(service, spark, 0, ["a"])
    positions = [p["position"] for p in service.status()["partitions"]]
    assert counted(service, spark, 1, []) == {}
    look = lambda key, rows, state: [{"user_id": key, "total": state.get("total")}]  # noqa: E731
    result = service.apply(users_frame(spark, ["a"]), 2, look, key="user_id", schema=SCHEMA)
    assert rows_of(result) == {"a": 1}
    same = lambda key, rows, state: state.set("total", state.get("total"))  # noqa: E731
    assert service.apply(users_frame(spark, ["a"]), 3, same, key="user_id", schema=SCHEMA).count() == 0
    nothing = users_frame(spark, ["a"]).where("false")
    assert service.apply(nothing, 4, count, key="user_id", schema=SCHEMA).count() == 0
    assert [p["position"] for p in service.status()["partitions"]] == positions
    assert counted(service, spark, 5, ["a"]) == {"a": 2}


def test_two_stores_in_one_batch(spark: Any, make_service: Any) -> None:
    totals, halves = make_service(store="one"), make_service(store="two")
    frame = users_frame(spark, ["a", "b"])
    for batch in range(2):
        first = totals.apply(frame, batch, count, key="user_id", schema=SCHEMA)
        second = halves.apply(first, batch, count, key="user_id", schema=SCHEMA)
        assert rows_of(second) == {"a": batch + 1, "b": batch + 1}
    assert totals.get("a", "total") == halves.get("a", "total") == 2


def test_a_key_with_many_rows_arrives_once(spark: Any, make_service: Any) -> None:
    service = make_service()
    frame = spark.range(100_000).select(F.lit("hot").alias("user_id"), F.col("id"))
    frame = frame.union(spark.range(10).select(F.lit("cold").alias("user_id"), F.col("id")))
    result = service.apply(frame, 0, count, key="user_id", schema=SCHEMA)
    assert rows_of(result) == {"hot": 100_000, "cold": 10}


def test_large_values(spark: Any, make_service: Any) -> None:
    def grow(key: str, rows: Any, state: cs.State) -> Any:
        text = state.get("text", default="")
        state.set("text", text + key * 1_000_000)
        yield {"user_id": key, "total": len(text)}

    service = make_service()
    users = [chr(ord("a") + n) for n in range(20)]
    for batch in range(2):
        result = service.apply(users_frame(spark, users), batch, grow, key="user_id", schema=SCHEMA)
        assert rows_of(result) == dict.fromkeys(users, batch * 1_000_000)
    assert service.get("c", "text") == "c" * 2_000_000


def test_many_keys_in_a_batch(spark: Any, make_service: Any) -> None:
    service = make_service()
    frame = spark.range(200_000).select(F.concat(F.lit("user-"), F.col("id")).alias("user_id"))
    for batch in range(2):
        result = service.apply(frame, batch, count, key="user_id", schema=SCHEMA)
        assert result.agg(F.count("*"), F.min("total"), F.max("total")).collect()[0][:] == (
            200_000,
            batch + 1,
            batch + 1,
        )
    assert service.get("user-199999", "total") == 2
    assert sum(1 for _ in service.scan(prefix="user-1999")) == 111


def test_order_by(spark: Any, make_service: Any) -> None:
    def in_order(key: str, rows: Any, state: cs.State) -> Any:
        seen = [row["n"] for row in rows]
        yield {"user_id": key, "total": int(seen == sorted(seen, reverse=True))}

    frame = spark.createDataFrame([("a", n * 7919 % 100) for n in range(100)], "user_id string, n long").repartition(
        3
    )
    result = make_service().apply(frame, 0, in_order, key="user_id", schema=SCHEMA, order_by=[F.col("n").desc()])
    assert rows_of(result) == {"a": 1}


def test_after_a_group_by_on_the_same_key(spark: Any, make_service: Any) -> None:
    """Spark would drop our exchange here and put several partitions into one task."""
    service = make_service()
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    frame = users_frame(spark, [f"u{n % 50}" for n in range(500)])
    frame = frame.groupBy("user_id").agg(F.count("*").alias("n"))
    for batch in range(2):
        result = service.apply(frame, batch, count, key="user_id", schema=SCHEMA)
        assert rows_of(result) == {f"u{n}": batch + 1 for n in range(50)}


def test_column_names_that_need_quoting(spark: Any, make_service: Any) -> None:
    frame = spark.createDataFrame([("a", 1), ("a", 2)], '`user.id` string, `it\'s "n"` long')

    def total(key: str, rows: Any, state: cs.State) -> Any:
        yield {"user_id": key, "total": sum(row['it\'s "n"'] for row in rows)}

    result = make_service().apply(frame, 0, total, key="user.id", schema=SCHEMA)
    assert rows_of(result) == {"a": 3}


@pytest.mark.parametrize("partitioning", ["hash", "source"])
def test_a_stream_from_kafka(partitioning: str, spark: Any, broker: Any, make_service: Any, tmp_path: Path) -> None:
    users = [f"user-{n * 31 % 97}" for n in range(1000)]
    source = Input(broker.bootstrap_servers)
    source.send(users)
    job = Job(spark, source, tmp_path / "checkpoint", partitioning=partitioning, rows_per_batch=400)
    service = make_service()
    job.run(service)
    assert len(job.truth) >= 3
    job.check(service, users)
    totals = Counter(users)
    assert [service.get(user, "total") for user in totals] == list(totals.values())


def test_the_service_pickles_as_its_settings(spark: Any, make_service: Any) -> None:
    service = make_service()
    counted(service, spark, 0, ["a"])
    copy = pickle.loads(pickle.dumps(service))
    assert copy.get("a", "total") == 1
    copy.close()

    def read_another(key: str, rows: Any, state: cs.State) -> Any:
        yield {"user_id": key, "total": service.get("a", "total")}

    other = make_service(store="other")
    result = other.apply(users_frame(spark, ["z"]), 0, read_another, key="user_id", schema=SCHEMA)
    assert rows_of(result) == {"z": 1}


def test_status_and_clear(spark: Any, make_service: Any) -> None:
    service = make_service()
    assert all(p["phase"] == "CLOSED" for p in service.status()["partitions"])
    assert service.get("a", "total") is None
    assert list(service.scan()) == []
    counted(service, spark, 3, ["a", "b", "c", "d", "e"])
    status = service.status()
    assert {p["phase"] for p in status["partitions"]} == {"ACTIVE"}
    assert {p["owner"] for p in status["partitions"]} == {status["agents"][0]["id"]}
    assert {p["lag_records"] for p in status["partitions"]} == {0}
    assert max(p["last_batch"] for p in status["partitions"] if p["last_batch"] is not None) == 3
    assert service.clear() == 5
    assert list(service.scan()) == []
    assert counted(service, spark, 0, ["a"]) == {"a": 1}  # the store is as new
