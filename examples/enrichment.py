"""Orders enriched from reference data, which every agent follows in full: docs/guide/enrichment.md.

The products stand in a compacted topic. A function looks them up while it keeps its own totals; a change of the
reference data counts from the next batch on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from local import Place, expect, run

import changelog_state as cs

EVENTS = "customer string, sku string"
RESULT = "customer string, last string, spent double"


def main(place: Place) -> None:
    products = cs.GlobalTable("products", topic="products")

    def spend(customer: str, rows: list[dict[str, Any]], state: cs.State) -> Iterator[dict[str, Any]]:
        known = [products.get(row["sku"]) for row in rows]
        spent = state.get("spent", 0.0) + sum(product["price"] for product in known)
        state.set("spent", spent)
        yield {"customer": customer, "last": known[-1]["name"], "spent": spent}

    def prices(**given: tuple[str, float]) -> None:
        producer = Producer({"bootstrap.servers": place.bootstrap_servers})
        for sku, (name, price) in given.items():
            producer.produce("products", key=sku, value=json.dumps({"name": name, "price": price}))
        producer.flush(30)

    topic = NewTopic("products", 2, 1, config={"cleanup.policy": "compact"})
    admin = AdminClient({"bootstrap.servers": place.bootstrap_servers})
    admin.create_topics([topic])["products"].result(30)
    prices(tea=("Tea", 3.0), cup=("Cup", 8.0))
    service = cs.StateService(
        application=place.application,
        store="spending",
        bootstrap_servers=place.bootstrap_servers,
        partitions=2,
        state_dir=place.directory / "state",
        global_tables=[products],
    )
    results: list[tuple[Any, ...]] = []

    def on_batch(df: Any, batch_id: int) -> None:
        enriched = service.apply(df, batch_id, spend, key="customer", schema=RESULT)
        results.extend(sorted(tuple(row) for row in enriched.collect()))

    def orders(*given: tuple[str, str]) -> None:
        place.send("orders", ({"customer": customer, "sku": sku} for customer, sku in given))
        place.process(place.stream("orders", EVENTS), on_batch)

    with service:
        orders(("ann", "tea"), ("bob", "cup"))
        expect(results, [("ann", "Tea", 3.0), ("bob", "Cup", 8.0)])
        results.clear()
        prices(tea=("Green tea", 4.5))
        orders(("ann", "tea"))
        expect(results, [("ann", "Green tea", 7.5)])


if __name__ == "__main__":
    run(main)
