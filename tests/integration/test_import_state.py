"""``import_state``: into which stores, by which keys, of which operators, and what it says of all others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor

import changelog_state as cs
from tests.support.spark_operator import settings, write_input

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = "k string, n long, at timestamp"
FIRST = [{"k": "a", "n": 5, "at": "2024-01-01T00:00:00Z"}, {"k": "b", "n": 1, "at": "2024-01-01T00:01:00Z"}]
SECOND = [{"k": "a", "n": 7, "at": "2024-01-01T01:00:00Z"}]
SETTINGS = {
    "spark.sql.shuffle.partitions": 1,
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


class Last(StatefulProcessor):
    """The numbers of a key's last batch: what an import over it would add to."""

    def init(self, handle: Any) -> None:
        self.numbers = handle.getListState("numbers", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        self.numbers.put([(int(n),) for frame in rows for n in frame["n"]])
        yield pd.DataFrame({"k": [key[0]]})


@pytest.fixture
def stopped(spark: Any, tmp_path: Path) -> Callable[..., str]:
    """Runs a query over what there is, and stops it: its checkpoint."""

    def run(build: Callable[[Any], Any], *batches: Any, name: str = "query", mode: str = "append") -> str:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        write_input(directory / "input", batches, first=len(list((directory / "input").glob("*"))))
        with settings(spark, SETTINGS):
            stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(directory / "input"))
            writer = build(stream).writeStream.outputMode(mode).format("noop")
            writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
            writer.start().awaitTermination()
        return str(directory / "checkpoint")

    return run


def last(stream: Any) -> Any:
    return stream.groupBy("k").transformWithStateInPandas(Last(), "k string", "update", "None")


def deduplicated(stream: Any) -> Any:
    return stream.dropDuplicates(["k"])


def numbers(service: cs.StateService) -> dict[Any, Any]:
    return {key: [each["n"] for each in values["numbers"]] for key, values in service.scan()}


def test_an_import_is_into_an_empty_store_only(spark: Any, make_service: Any, stopped: Any) -> None:
    service = make_service(partitions=2)
    checkpoint = stopped(last, FIRST, mode="update")
    service.import_state(checkpoint, spark=spark)
    service.import_state(checkpoint, spark=spark)
    assert numbers(service) == {"a": [5], "b": [1]}

    # That was a rehearsal. The query has gone on; what is here must not be mixed with it.
    stopped(last, SECOND, mode="update")
    with pytest.raises(cs.BatchRefusedError, match=r"not empty: it has batch 0 of .*clear\(\) it"):
        service.import_state(checkpoint, spark=spark)
    assert numbers(service) == {"a": [5], "b": [1]}
    service.clear()
    imported = service.import_state(checkpoint, spark=spark)
    assert (imported.batch, numbers(service)) == (1, {"a": [7], "b": [1]})

    # The query goes on here.
    query = json.loads((Path(checkpoint) / "metadata").read_text())["id"]
    rows = spark.createDataFrame([("b", 9)], "k string, n long")
    service.transform_with_state(rows, 2, Last(), key="k", output_schema="k string", query_id=query).collect()
    with pytest.raises(cs.BatchRefusedError, match="already goes on here, and nothing is left to import"):
        service.import_state(checkpoint, spark=spark)
    assert numbers(service) == {"a": [7], "b": [9]}

    other = make_service(store="other", partitions=2, on_new_query="continue")
    other.transform_with_state(rows, 0, Last(), key="k", output_schema="k string").collect()
    with pytest.raises(cs.BatchRefusedError, match="not empty: it has batch 0 of query no-query"):
        other.import_state(checkpoint, spark=spark)
    assert numbers(other) == {"b": [9]}


def test_another_import_of_the_same_batch_is_no_success(spark: Any, make_service: Any, stopped: Any) -> None:
    checkpoint = stopped(deduplicated, FIRST)
    service = make_service(partitions=1)
    imported = service.import_state(checkpoint, spark=spark)
    assert dict(service.scan()) == {"a": {"seen": True}, "b": {"seen": True}}
    assert service.import_state(checkpoint, spark=spark) == imported

    def otherwise(key: Any, value: dict[str, Any], state: cs.State) -> None:
        state.set("known", 1)

    with pytest.raises(cs.BatchRefusedError, match=r"has another import of batch 0 .*clear\(\) it, then import"):
        service.import_state(checkpoint, otherwise, spark=spark)
    service.clear()
    service.import_state(checkpoint, otherwise, spark=spark)
    assert dict(service.scan()) == {"a": {"known": 1}, "b": {"known": 1}}


def test_each_of_the_operators_keys_has_a_key_of_its_own(spark: Any, make_service: Any, stopped: Any) -> None:
    checkpoint = stopped(last, FIRST, mode="update")
    service = make_service(partitions=1)
    with pytest.raises(cs.ConfigurationError, match=r"makes 1 keys of the operator's 2, .*struct<k:string>"):
        service.import_state(checkpoint, key={"k": "'same'"}, spark=spark)
    with pytest.raises(cs.ConfigurationError, match=r"cannot be had from .*struct<k:string>.*zz.*'key.k'"):
        service.import_state(checkpoint, key={"k": "key.zz"}, spark=spark)
    with pytest.raises(cs.ConfigurationError, match="cannot be had from the operator's key"):
        service.import_state(checkpoint, key={"k": "key.k +"}, spark=spark)
    with pytest.raises(cs.InvalidKeyError, match="cannot be of type 'timestamp'.*key= does that, such as"):
        service.import_state(checkpoint, key={"k": "key.k", "at": "timestamp_seconds(0)"}, spark=spark)
    service.import_state(checkpoint, key={"k": "upper(key.k)"}, spark=spark)
    assert numbers(service) == {"A": [5], "B": [1]}


def test_operators_that_cannot_be_read_are_named(spark: Any, make_service: Any, stopped: Any, tmp_path: Path) -> None:
    service = make_service(partitions=1)

    def joined(stream: Any) -> Any:
        left = stream.withWatermark("at", "10 minutes")
        right = stream.selectExpr("k as other", "at as then").withWatermark("then", "10 minutes")
        return left.join(right, F.expr("k = other and then between at - interval 1 hour and at"))

    join = stopped(joined, FIRST, name="join")
    with pytest.raises(cs.ConfigurationError, match=r"operator 0 \(symmetricHashJoin\) in checkpoint .*aggregations"):
        service.import_state(join, spark=spark)
    plain = stopped(lambda stream: stream.select("k"), FIRST, name="plain")
    with pytest.raises(cs.ConfigurationError, match="has no state: its query has no stateful operator"):
        service.import_state(plain, spark=spark)
    checkpoint = stopped(deduplicated, FIRST)
    shutil.copytree(checkpoint, tmp_path / "copy", ignore=shutil.ignore_patterns("state"))
    with pytest.raises(cs.ConfigurationError, match="directory 'state' was left out of a copy"):
        service.import_state(str(tmp_path / "copy"), spark=spark)
    total = stopped(lambda stream: stream.groupBy().count(), FIRST, name="total", mode="update")
    with pytest.raises(cs.ConfigurationError, match="key has no fields; give key="):
        service.import_state(total, spark=spark)
    service.import_state(total, key={"all": "'all'"}, spark=spark)
    assert dict(service.scan()) == {"all": {"count": 2}}


def test_what_cannot_be_kept_as_it_is_takes_a_function(spark: Any, make_service: Any, stopped: Any) -> None:
    checkpoint = stopped(
        lambda stream: stream.groupBy("k").agg(F.max("at").alias("last")), FIRST, SECOND, mode="update"
    )
    service = make_service(partitions=1)
    with pytest.raises(cs.ValueEncodingError, match="field 'max' of the operator's value cannot be kept.*give func="):
        service.import_state(checkpoint, spark=spark)

    def take_over(key: Any, value: dict[str, Any], state: cs.State) -> None:
        state.set("last", value["max"].isoformat())

    service.import_state(checkpoint, take_over, spark=spark)
    assert service.get("a", "last") == "2024-01-01T01:00:00+00:00"


def test_timeouts_become_timers(spark: Any, make_service: Any, stopped: Any) -> None:
    def counted(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        state.update((sum(map(len, frames)),))
        if key[0] == "a":
            state.setTimeoutTimestamp(1_704_106_000_000)
        yield pd.DataFrame({"k": [key[0]]})

    def build(stream: Any) -> Any:
        grouped = stream.withWatermark("at", "10 minutes").groupBy("k")
        return grouped.applyInPandasWithState(counted, "k string", "n long", "update", "EventTimeTimeout")

    checkpoint = stopped(build, FIRST, mode="update")
    service = make_service(partitions=1)
    service.import_state(checkpoint, spark=spark)
    assert dict(service.scan()) == {
        "a": {"groupState": {"n": 1}, "timeoutTimestamp": 1_704_106_000_000},
        "b": {"groupState": {"n": 1}, "timeoutTimestamp": -1},
    }

    def take_over(key: Any, value: dict[str, Any], state: cs.State) -> None:
        state.set("n", value["groupState"]["n"])
        if value["timeoutTimestamp"] >= 0:
            state.set_timer(value["timeoutTimestamp"] / 1000, "timeout", clock="event")

    def ended(key: Any, name: str, at: Any, state: cs.State) -> Iterator[dict[str, Any]]:
        yield {"k": key, "what": f"{name} {state.get('n')}"}

    timed = make_service(store="timed", partitions=1)
    imported = timed.import_state(checkpoint, take_over, spark=spark)
    rows = spark.createDataFrame([("c", "2024-01-02T00:00:00Z")], "k string, at string")
    rows = rows.withColumn("at", F.to_timestamp("at"))
    query: dict[str, Any] = {"query_id": imported.query, "key": "k", "schema": "k string, what string"}
    found = []
    for batch in (imported.batch + 1, imported.batch + 2):
        result = timed.apply(rows, batch, lambda *_: (), on_timer=ended, event_time="at", **query)
        found += [tuple(row) for row in result.collect()]
    assert found == [("a", "timeout 1")]
