"""Global tables in a user's function, in a join, and in the process of the service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import changelog_state as cs
from changelog_state.faults import arm
from tests.support.polling import until
from tests.support.stream import count
from tests.support.tables import TableTopic

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def topic(broker: Any) -> TableTopic:
    made = TableTopic(broker.bootstrap_servers, partitions=3)
    made.write({sku: json.dumps({"price": price, "name": sku.upper()}) for sku, price in (("a", 1.5), ("b", 2))})
    return made


def status_text(application: str, settings: dict[str, Any]) -> str:
    options = ["--application", application, "--store", "orders", "--state-dir", settings["state_dir"]]
    options += ["--bootstrap-servers", settings["bootstrap_servers"]]
    command = [sys.executable, "-m", "changelog_state", "status", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_looking_things_up_in_functions_and_joins(
    spark: Any, make_service: Any, topic: TableTopic, application: str, faults: Path
) -> None:
    """A stream of orders, enriched from a topic and from the state of another store."""
    users_service = make_service(store="users")
    frame = spark.createDataFrame([("ann",), ("bob",), ("ann",)], "user_id string")
    users_service.apply(frame, 0, count, key="user_id", schema="user_id string, total long")

    prices, users = cs.GlobalTable("prices", topic=topic.name), cs.GlobalTable("users", store="users")
    stranger = cs.GlobalTable("stranger", topic=topic.name)
    service = make_service(store="orders", global_tables=[prices, users], partitions=2)
    orders = spark.createDataFrame(
        [("ann", "a", 1), ("ann", "b", 2), ("eve", "a", 3), ("eve", None, 4)], "user string, sku string, `n.o` long"
    )

    def enrich(key: str, rows: list[dict[str, Any]], state: cs.State) -> Any:
        found = prices.get_many([row["sku"] for row in rows if row["sku"]])
        total = sum(price["price"] for price in found.values())
        found["a"]["price"] = -1.0  # what a look-up gives belongs to whoever has asked
        again = prices.get("a")["price"]
        state.set("total", total)
        yield {"user": key, "total": total, "again": again, "seen": users.get(key, "total", default=0)}

    schema = "user string, total double, again double, seen long"
    arm(faults, "table.replaying", "hold")  # no function may run before the table is there
    with pytest.raises(cs.RestoreTimeoutError, match="global table .*RESTORING"):
        service.apply(orders, 0, enrich, key="user", schema=schema, timeout=2)
    assert list(service.scan()) == []
    (faults / "table.replaying.held").unlink()

    result = service.apply(orders, 0, enrich, key="user", schema=schema)
    rows = {row["user"]: (row["total"], row["again"], row["seen"]) for row in result.collect()}
    assert rows == {"ann": (3.5, 1.5, 2), "eve": (1.5, 1.5, 0)}
    assert service.get("ann", "total") == 3.5

    joined = prices.join(orders, on="sku", schema="price double, name string")
    assert joined.columns == ["user", "sku", "n.o", "price", "name"]
    assert sorted(map(tuple, joined.collect()), key=lambda row: row[2]) == [
        ("ann", "a", 1, 1.5, "A"),
        ("ann", "b", 2, 2.0, "B"),
        ("eve", "a", 3, 1.5, "A"),
        ("eve", None, 4, None, None),
    ]
    totals = users.join(orders.select("user"), "user", "total long").distinct().collect()
    assert sorted(map(tuple, totals)) == [("ann", 2), ("eve", None)]
    with pytest.raises(cs.InvalidKeyError, match="'nothing'"):
        prices.join(orders, "nothing", "price double")
    with pytest.raises(cs.OutputSchemaError, match="columns .'user'. already"):
        prices.join(orders, "sku", "user string")

    said = status_text(application, service._settings.as_given())
    assert f"global table prices (topic {topic.name}): " in said
    assert f"global table users (topic {application}-users-changelog): " in said
    assert said.count("(lag 0 records, 0.0 s)") == 2

    def strange(key: str, rows: list[dict[str, Any]], state: cs.State) -> None:
        stranger.get(key)

    with pytest.raises(cs.ConfigurationError, match="stranger is not among the service's tables .prices, users"):
        service.apply(orders, 1, strange, key="user", schema=schema)


def test_looking_things_up_in_the_services_process(make_service: Any, topic: TableTopic) -> None:
    """No Spark, no batch: the agent is started, and asked to follow."""
    prices = cs.GlobalTable("prices", topic=topic.name)
    service = make_service(global_tables=[prices])
    assert service.status()["tables"] == [{"table": "prices", "topic": topic.name, "agents": []}]
    assert prices.get("a") == {"price": 1.5, "name": "A"}
    assert prices.get_many(["a", "b", "c"]).keys() == {"a", "b"}
    assert prices.get("c", default=7) == 7
    topic.write({"a": None, "c": '"see"'})
    until(lambda: prices.get_many(["a", "c"]) == {"c": "see"}, "it follows")
    until(lambda: service.status()["tables"][0]["agents"][0]["lag_records"] == 0, "it has everything")
    [table] = service.status()["tables"]
    [at] = table["agents"]
    assert at["agent"] == service.status()["agents"][0]["id"]
    assert (at["phase"], at["ready"], at["lag_seconds"], at["warning"], at["error"]) == (
        "FOLLOWING",
        True,
        0.0,
        None,
        None,
    )
    nothing = cs.GlobalTable("nothing", topic="no-such-topic")
    make_service(global_tables=[nothing], store="other")
    with pytest.raises(cs.ConfigurationError, match="no-such-topic, which does not exist"):
        nothing.get("a")
