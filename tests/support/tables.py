"""A topic as somebody else writes it, and a way to look into what an agent makes of it."""

from __future__ import annotations

import uuid
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from changelog_state.codec.partitioner import kafka_partition
from changelog_state.config import StoreConfig, TableConfig
from changelog_state.requests import LookupRequest
from changelog_state.tables.access import TableAccess
from changelog_state.tables.table import GlobalTable
from tests.support.driver import AgentProcess, LocalAgent
from tests.support.polling import until


class TableTopic:
    def __init__(self, bootstrap_servers: str, partitions: int = 2, **settings: str) -> None:
        self.name = f"prices-{uuid.uuid4().hex[:10]}"
        self._servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self.create(partitions, **settings)

    def create(self, partitions: int, **settings: str) -> None:
        self.partitions = partitions
        config = {"cleanup.policy": "compact", **{name.replace("_", "."): value for name, value in settings.items()}}
        self._admin.create_topics([NewTopic(self.name, partitions, 1, config=config)])[self.name].result(15)
        self._begin()

    def _begin(self) -> None:
        """A producer that knows the topic as it is by now."""
        described = lambda: self._admin.list_topics(self.name, timeout=10).topics[self.name]  # noqa: E731
        until(lambda: len(described().partitions) == self.partitions, "the topic is there")
        self._producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})

    def delete(self) -> None:
        self._admin.delete_topics([self.name])[self.name].result(15)
        until(lambda: self.name not in self._admin.list_topics(timeout=10).topics, "the topic is gone")

    def grow(self, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(15)
        self.partitions = partitions
        self._begin()

    def write(self, entries: dict[Any, str | None], partition: int | None = None) -> None:
        """As Java's producer would place them, or where told; None deletes."""
        for key, value in entries.items():
            data = key.encode() if isinstance(key, str) else key
            place = kafka_partition(data, self.partitions) if partition is None else partition
            self._producer.produce(self.name, value, data, place)
        assert self._producer.flush(30) == 0

    def transact(self, entries: dict[str, str | None], *, commit: bool) -> None:
        settings = {"bootstrap.servers": self._servers, "transactional.id": f"t-{uuid.uuid4().hex}"}
        producer = Producer(settings)
        producer.init_transactions(15)
        producer.begin_transaction()
        for key, value in entries.items():
            producer.produce(self.name, value, key, kafka_partition(key.encode(), self.partitions))
        producer.flush(15)
        (producer.commit_transaction if commit else producer.abort_transaction)(15)


def looked_up(table: GlobalTable, config: StoreConfig, *agents: LocalAgent | AgentProcess) -> TableAccess:
    """Through these agents, in this order, every time afresh."""
    followed = table.settings.config(config)
    request = LookupRequest(followed.application, followed.table, followed.changelog_topic)
    return TableAccess(table.settings, request, lambda: [agent.client.address for agent in agents], keep=False)


def status_at(agent: LocalAgent | AgentProcess, config: StoreConfig, table: TableConfig | None = None) -> Any:
    """Of the only table there; with ``table`` also asked for, as a driver would."""
    asked = {"tables": [table], "asker": "test"} if table is not None else {}
    found = agent.client.pulse(config, as_driver=False, **asked)["tables"]
    return found[0] if found else None
