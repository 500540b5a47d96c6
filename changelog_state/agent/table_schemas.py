"""With which schemas the values of a store were written that a global table follows."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from changelog_state.agent.table_partition import TablePartition
from changelog_state.changelog.control import read_control
from changelog_state.changelog.record import Claim
from changelog_state.codec.kinds import CLAIM, SCHEMA
from changelog_state.config import StoreConfig, TableConfig

__all__ = ["TableSchemas", "newest_claim"]

_Generations = Mapping[str, Mapping[bytes, str]]


class TableSchemas:
    def __init__(self, config: TableConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._known: tuple[str, int, _Generations] = "", -1, {}
        """Of which topic, and as of which epoch."""

    def find(
        self, topic_id: str, partitions: Mapping[int, TablePartition], name: str, fingerprint: bytes
    ) -> str | None:
        """As the variable was declared, or else as the changelog has it: for one fingerprint it has only one schema,
        which may be that of another variable, whose values mean something else."""
        claim = newest_claim(partitions)
        if claim is None:
            return None
        with self._lock:
            # Declarations come with an epoch, and values under it come after its claims. Where there are none, look
            # again: whoever empties a store declares afterwards, in the same epoch.
            if self._known[:2] != (topic_id, claim.epoch) or not self._known[2]:
                self._known = topic_id, claim.epoch, self._declared(claim)
            own = self._known[2].get(name, {}).get(fingerprint)
        return own or _recorded(partitions, fingerprint)

    def _declared(self, claim: Claim) -> _Generations:
        config = self._config
        store = StoreConfig(
            claim.application, claim.store, config.bootstrap_servers, claim.partitions, config.kafka, config.topic
        )
        return read_control(store).variables.writer_schemas()


def newest_claim(partitions: Mapping[int, TablePartition]) -> Claim | None:
    found = [partition.read(lambda state: state.store.get(CLAIM)) for partition in partitions.values()]
    claims = [Claim.decode(data) for data in found if data is not None]
    return max(claims, key=lambda claim: claim.epoch, default=None)


def _recorded(partitions: Mapping[int, TablePartition], fingerprint: bytes) -> str | None:
    found = (partition.read(lambda state: state.store.get(SCHEMA + fingerprint)) for partition in partitions.values())
    schema = next((data for data in found if data is not None), None)
    return None if schema is None else schema.decode()
