"""What a global table is, as its user has said it; checked when it is made."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from changelog_state.codec.avro import SingleObjectCodec
from changelog_state.config import StoreConfig, TableConfig
from changelog_state.errors import ConfigurationError

__all__ = ["KEYS", "VALUES", "TableSettings"]

KEYS = ("string", "bytes", "long")
VALUES = ("json", "string", "bytes", "avro")


@dataclass(frozen=True)
class TableSettings:
    name: str
    topic: str | None
    store: str | None
    application: str | None
    """Of the store; None: the service's."""
    key: str
    value: str
    schemas: tuple[str, ...]
    """Avro schemas as JSON text."""

    @classmethod
    def checked(
        cls,
        name: str,
        *,
        topic: str | None,
        store: str | None,
        application: str | None,
        key: str | None,
        value: str | None,
        schema: Any,
    ) -> TableSettings:
        where = f"global table {name!r}"
        if (topic is None) == (store is None):
            raise ConfigurationError(f"{where} follows one thing: give topic= (a compacted topic) or store=")
        if store is not None and (key, value, schema) != (None, None, None):
            raise ConfigurationError(
                f"{where} follows a store, which knows its keys and values; leave key=, value= out"
            )
        if topic is not None and application is not None:
            raise ConfigurationError(f"{where} follows a topic; application= is for the store of another application")
        for what, given, choices in (("key", key, KEYS), ("value", value, VALUES)):
            if given is not None and given not in choices:
                raise ConfigurationError(f"{where}: {what} is {given!r}; use one of {', '.join(map(repr, choices))}")
        if (value == "avro") != (schema is not None):
            raise ConfigurationError(f"{where}: value='avro' and schema= go together; give both or neither")
        made = cls(name, topic, store, application, key or KEYS[0], value or VALUES[0], _schemas(schema))
        # Names are checked where they are used; a placeholder stands for what only the service knows.
        made.config(StoreConfig("any", "any", "any", 1))
        return made

    def config(self, service: StoreConfig) -> TableConfig:
        """What agents are asked to follow for a service."""
        if self.store is not None:
            other = StoreConfig(self.application or service.application, self.store, service.bootstrap_servers, 1)
            topic = other.changelog_topic
        else:
            assert self.topic is not None
            topic = self.topic
        return TableConfig(
            service.application,
            self.name,
            service.bootstrap_servers,
            topic,
            raw_keys=self.store is None,
            kafka=service.kafka,
        )


def _schemas(given: Any) -> tuple[str, ...]:
    """One schema or several, each a dict or JSON text."""
    if given is None:
        return ()
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    return tuple(SingleObjectCodec(_parsed(schema)).schema_json for schema in several)


def _parsed(schema: Any) -> Any:
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except ValueError as error:
        raise ConfigurationError(f"an Avro schema is not valid: {schema!r} is not JSON ({error})") from error
