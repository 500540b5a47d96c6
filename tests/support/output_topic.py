"""A topic for output rows, and what a read_committed consumer of it gets to see."""

from __future__ import annotations

import uuid
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from changelog_state.changelog.reader import ChangelogReader
from changelog_state.config import ClusterConfig

PARTITIONS = 3


class OutputTopic:
    def __init__(self, bootstrap_servers: str, partitions: int = PARTITIONS, **settings: str) -> None:
        self._name(f"output-{uuid.uuid4().hex[:10]}", bootstrap_servers, partitions)
        self.create(**settings)

    @classmethod
    def existing(cls, bootstrap_servers: str, name: str) -> OutputTopic:
        found = cls.__new__(cls)
        found._name(name, bootstrap_servers, PARTITIONS)
        return found

    def _name(self, name: str, bootstrap_servers: str, partitions: int) -> None:
        self.name = name
        self.partitions = partitions
        self._config = ClusterConfig("reader", bootstrap_servers)
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def create(self, **settings: str) -> None:
        new = NewTopic(
            self.name, self.partitions, 1, config={name.replace("_", "."): settings[name] for name in settings}
        )
        self._admin.create_topics([new])[self.name].result(15)

    def delete(self) -> None:
        self._admin.delete_topics([self.name], operation_timeout=15)[self.name].result(20)

    def permit(self, operation: AclOperation) -> None:
        """On a broker that asks for permissions: from the first one on, everything else is forbidden."""
        pattern = ResourceType.TOPIC, self.name, ResourcePatternType.LITERAL
        binding = AclBinding(*pattern, "User:ANONYMOUS", "*", operation, AclPermissionType.ALLOW)
        self._admin.create_acls([binding])[binding].result(15)

    def messages(self) -> list[Any]:
        """All that is committed, partition by partition.

        A commit is answered a moment before it can be read, so this waits until everything written is decided.
        """
        ends = self._ends()
        found: list[Any] = []
        for partition in range(self.partitions):
            with ChangelogReader(self._config, self.name, partition) as reader:
                low, _ = reader.bounds()
                reader.seek(low)
                while reader.position() < ends[partition]:
                    found += reader.read(10_000)
                    reader.check_progress()
        return found

    def _ends(self) -> dict[int, int]:
        """Decided or not."""
        wanted = {TopicPartition(self.name, number): OffsetSpec.latest() for number in range(self.partitions)}
        asked = self._admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=15)
        return {place.partition: found.result(20).offset for place, found in asked.items()}

    def rows(self) -> list[tuple[str, str]]:
        """Keys and values as text, those of a key in their order."""
        return [(message.key().decode(), message.value().decode()) for message in self.messages()]
