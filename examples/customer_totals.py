"""What every customer has spent, with late orders, and no function of Python: docs/guide/customer-totals.md.

Orders come out of order. All of them count for the totals; "last" is the latest by the time of the order, whenever it
comes. In the end everything is what Spark makes of all orders at once.
"""

from __future__ import annotations

from typing import Any

from local import Place, expect, run
from pyspark.sql import functions as F  # noqa: N812 (Spark's own custom)

import changelog_state as cs

EVENTS = "customer string, at timestamp, product string, price double, quantity long"


def main(place: Place) -> None:
    service = cs.StateService(
        application=place.application,
        store="customers",
        bootstrap_servers=place.bootstrap_servers,
        partitions=2,
        state_dir=place.directory / "state",
    )
    results: dict[str, Any] = {}

    def on_batch(df: Any, batch_id: int) -> None:
        totals = service.aggregate(
            df,
            batch_id,
            key="customer",
            aggs={
                "orders": cs.count(),
                "spent": cs.sum(F.col("price") * F.col("quantity")),
                "average": cs.mean("price"),
                "dearest": cs.max("price"),
                "products": cs.approx_distinct("product"),
                "last": cs.last("product", by="at"),
                "best": cs.top("product", 2, by="price"),
            },
            event_time="at",
            watermark_delay="5 minutes",
        )
        results.update((row.customer, row.asDict()) for row in totals.collect())

    def orders(*given: tuple[str, str, str, float, int]) -> None:
        names = ("customer", "at", "product", "price", "quantity")
        events = (dict(zip(names, (c, f"2024-05-01T{at}:00Z", *rest), strict=True)) for c, at, *rest in given)
        place.send("customer-orders", events)
        place.process(place.stream("customer-orders", EVENTS), on_batch)

    with service:
        orders(("ann", "12:00", "tea", 4.0, 2), ("bob", "12:01", "mug", 9.5, 1), ("ann", "12:20", "pot", 30.0, 1))
        orders(("ann", "12:10", "cup", 6.0, 4), ("bob", "12:21", "tea", 4.0, 1))
        orders(("ann", "12:11", "tea", 4.0, 1))
        ann, bob = (results[name] for name in ("ann", "bob"))
        expect((ann["orders"], ann["spent"], ann["average"], ann["dearest"]), (4, 66.0, 11.0, 30.0))
        expect((ann["products"], ann["last"], ann["best"]), (3, "pot", ["pot", "cup"]))
        expect((bob["orders"], bob["last"], bob["best"]), (2, "tea", ["mug", "tea"]))
        expect(service.metrics()["late_rows"], 2)  # 12:10 and 12:11, after 12:20 had been seen
        expect(service.get("ann", "aggregates")["orders"], 4)


if __name__ == "__main__":
    run(main)
