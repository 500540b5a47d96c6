"""Account balances, and a topic that tells of each payment once: docs/guide/account-balances.md.

A payment is booked if the account has enough. What was decided goes to the topic ``balances``, in the transaction
that changes the balance. Then the driver dies after a batch was committed, so that Spark runs it again, and the agent
is killed. A second topic, written by Spark's own sink, tells of that batch twice.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from local import Place, expect, run
from pyspark.errors import StreamingQueryException

import changelog_state as cs

PAYMENTS = "account string, payment int, cents long"
DECIDED = "account string, payment int, booked boolean, balance long"
ROUNDS = [
    [("alice", 1, 500), ("bob", 2, 300), ("alice", 3, -200)],
    [("bob", 4, -400), ("alice", 5, -300), ("bob", 6, 50), ("carol", 7, 10)],
    [("alice", 8, -1), ("carol", 9, -10), ("bob", 10, -350)],
]


def book(account: str, rows: list[dict[str, Any]], state: Any) -> Iterator[dict[str, Any]]:
    for row in rows:
        enough = state.balance + row["cents"] >= 0
        if enough:
            state.balance += row["cents"]
        yield {"account": account, "payment": row["payment"], "booked": enough, "balance": state.balance}


def main(place: Place) -> None:
    service = cs.StateService(
        application=place.application,
        store="accounts",
        bootstrap_servers=place.bootstrap_servers,
        partitions=2,
        state_dir=place.directory / "state",
        state=[cs.Value("balance", int, default=0)],
    )
    for topic in ("balances", "balances-by-spark"):
        place.send(topic, [])
    driver_dies_after = {1}

    def on_batch(df: Any, batch_id: int) -> None:
        decided = service.apply(
            df, batch_id, book, key="account", schema=DECIDED, order_by="payment", output_topic="balances"
        )
        write_with_sparks_sink(decided, place.bootstrap_servers)
        if batch_id in driver_dies_after:
            driver_dies_after.remove(batch_id)
            raise RuntimeError("the driver dies before Spark has noted that the batch is done")

    with service:
        for payments in ROUNDS:
            place.send("payments", ({"account": a, "payment": number, "cents": c} for a, number, c in payments))
            try:
                place.process(place.stream("payments", PAYMENTS), on_batch)
            except StreamingQueryException:
                os.kill(service.status()["agents"][0]["pid"], signal.SIGKILL)
                place.process(place.stream("payments", PAYMENTS), on_batch)
        rows, balances = expected()
        expect({row["payment"]: row for row in told_of(place, "balances")}, rows)
        expect({account: values["balance"] for account, values in service.scan()}, balances)
    once, by_spark = (Counter(row["payment"] for row in told_of(place, t)) for t in ("balances", "balances-by-spark"))
    if set(once.values()) != {1}:
        raise SystemExit(f"the topic tells of payments more than once: {once}")
    print(f"each of {len(once)} payments once; Spark's own sink told of {sorted(by_spark - once)} twice")


def write_with_sparks_sink(rows: Any, bootstrap_servers: str) -> None:
    (
        rows.selectExpr("account AS key", "to_json(struct(*)) AS value")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", "balances-by-spark")
        .save()
    )


def told_of(place: Place, topic: str) -> list[dict[str, Any]]:
    """All that a consumer sees which reads only what is committed.

    A commit is answered a moment before it can be read: so this waits until everything written so far is decided.
    """
    common = {"bootstrap.servers": place.bootstrap_servers, "group.id": "bank", "enable.auto.commit": False}
    anything = Consumer(common | {"isolation.level": "read_uncommitted"})
    consumer = Consumer(common | {"isolation.level": "read_committed"})
    parts = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    ends = {part.partition: anything.get_watermark_offsets(part)[1] for part in parts}
    consumer.assign(parts)
    rows: list[dict[str, Any]] = []
    while any(max(at.offset, 0) < ends[at.partition] for at in consumer.position(parts)):
        rows += [json.loads(message.value()) for message in consumer.consume(500, 0.2)]
    consumer.close()
    anything.close()
    return rows


def expected() -> tuple[dict[int, dict[str, Any]], dict[str, int]]:
    """The same in plain Python: what was decided on each payment, and the balances in the end."""
    balances: dict[str, int] = {}
    rows = {}
    for account, number, cents in (payment for payments in ROUNDS for payment in payments):
        balance = balances.get(account, 0)
        booked = balance + cents >= 0
        balances[account] = balance + cents if booked else balance
        rows[number] = {"account": account, "payment": number, "booked": booked, "balance": balances[account]}
    return rows, balances


if __name__ == "__main__":
    run(main)
