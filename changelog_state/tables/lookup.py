"""A session of look-ups with one agent: first it says how the table is to be asked, then it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from changelog_state.agent.messages import LOOKUP_SCHEMA
from changelog_state.changelog.record import StoreIdentity
from changelog_state.requests import LookupRequest
from changelog_state.tables.codec import StoreCodec, TableCodec, TopicCodec
from changelog_state.tables.settings import TableSettings
from changelog_state.task.exchange import Exchange

__all__ = ["LookupSession"]


class LookupSession(Exchange):
    def __init__(self, address: str, request: LookupRequest, settings: TableSettings) -> None:
        super().__init__(address, request.encode(), LOOKUP_SCHEMA)
        try:
            described = json.loads(self._receive().app_metadata.to_pybytes())
            self.codec = self._codec(settings, described)
            """None: a store that was never written, in which nothing can be found."""
        except BaseException:
            self.close()
            raise

    def find(self, keys: Mapping[bytes, Any]) -> dict[bytes, dict[str, bytes]]:
        """What the table has under these keys, by their encoding; all of them in one request."""
        ordered = sorted(keys)  # which makes reading them faster
        assert self.codec is not None
        places = [self.codec.place(keys[encoded], encoded) for encoded in ordered]
        verb = json.dumps({"verb": "get", "anywhere": self.codec.anywhere}).encode()
        self._send([pa.array(ordered, pa.binary()), pa.array(places, pa.int32())], verb)
        return dict(zip(ordered, self._receive_values(len(ordered)), strict=True))

    def _codec(self, settings: TableSettings, described: dict[str, Any]) -> TableCodec | None:
        if settings.store is None:
            return TopicCodec(settings, described["partitions"])
        if described["identity"] is None:
            return None
        return StoreCodec(settings, StoreIdentity.from_fields(described["identity"]), self._schema_of)

    def _schema_of(self, name: str, fingerprint: bytes) -> str | None:
        """Asked for when a value needs it: what was declared since the session has begun is found too."""
        verb = json.dumps({"verb": "schema", "name": name, "fingerprint": fingerprint.hex()}).encode()
        self._send([pa.array([], pa.binary()), pa.array([], pa.int32())], verb)
        found: str | None = json.loads(self._receive().app_metadata.to_pybytes())["schema"]
        return found
