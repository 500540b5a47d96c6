"""``python -m changelog_state.demo.cluster.buy``: purchases into the input topic, until stopped."""

from __future__ import annotations

import os
import signal
import threading

from changelog_state.demo.cluster.settings import PARTITIONS, ClusterSettings
from changelog_state.demo.purchases import PurchaseProducer, create_input_topic
from changelog_state.demo.settings import INPUT_TOPIC

__all__ = ["main"]

_USERS = 5_000
_FOR_EVER_SECONDS = 10 * 365 * 24 * 3600
_REPORT_SECONDS = 10.0


def main() -> None:
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    bootstrap_servers = ClusterSettings.from_environment().bootstrap_servers
    create_input_topic(bootstrap_servers, INPUT_TOPIC, PARTITIONS)
    rate = int(os.environ.get("PURCHASES_PER_SECOND", "1000"))
    purchases = PurchaseProducer(
        bootstrap_servers, INPUT_TOPIC, events=rate * _FOR_EVER_SECONDS, seconds=_FOR_EVER_SECONDS, users=_USERS
    )
    print(f"{_USERS:,} users begin to buy at random, {rate:,} purchases/s into topic {INPUT_TOPIC!r}")
    while not stopped.wait(_REPORT_SECONDS):
        purchases.check()
        print(f"{purchases.sent:,} purchases sent")
    # What is under way may or may not arrive. Either is fine: what counts is what the topic has.
    purchases.cancel()
    print(f"stopped after {purchases.sent:,} purchases")


if __name__ == "__main__":
    main()
