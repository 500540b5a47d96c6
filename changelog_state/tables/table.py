"""GlobalTable: reference data that every agent has in full, for look-ups from any task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from changelog_state.errors import ConfigurationError
from changelog_state.tables.access import TableAccess
from changelog_state.tables.context import LookUps, TaskTables, access_in_task
from changelog_state.tables.settings import TableSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["GlobalTable", "TablesOfService"]


class TablesOfService(Protocol):
    """How a table outside of tasks finds agents: through the service that it was given to."""

    def access(self, settings: TableSettings) -> TableAccess: ...

    def for_tasks(self, settings: TableSettings, df: DataFrame) -> TaskTables: ...


class GlobalTable:
    """A compacted Kafka topic, or another store, to look things up in. Read-only. Pickles as its settings only.

    Given to a service in ``global_tables=``, it can be used in functions of its ``apply()``, and in the process of
    the service itself. A look-up sees what its agent has read from the topic: usually all but the last moment. What
    it returns is no part of the state's version: a batch that is replayed may see newer values.

    ``topic``: with ``key`` "string", "bytes" or "long" and ``value`` "json", "string", "bytes" or "avro" (single
    objects; then ``schema`` is the producer's schema, or a list of them).
    ``store``: another store, of this application or of ``application``.
    """

    def __init__(
        self,
        name: str,
        *,
        topic: str | None = None,
        store: str | None = None,
        application: str | None = None,
        key: str | None = None,
        value: str | None = None,
        schema: Any = None,
    ) -> None:
        self.settings = TableSettings.checked(
            name, topic=topic, store=store, application=application, key=key, value=value, schema=schema
        )
        self._service: TablesOfService | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    def __reduce__(self) -> tuple[Callable[..., GlobalTable], tuple[TableSettings]]:
        return _from_settings, (self.settings,)

    def __repr__(self) -> str:
        of = f"topic={self.settings.topic!r}" if self.settings.store is None else f"store={self.settings.store!r}"
        return f"GlobalTable({self.name!r}, {of})"

    def get(self, key: Any, name: str | None = None, *, default: Any = None) -> Any:
        """The value of a key. Of a store: that under a name; without one, a dict of all names and values."""
        return self._access().get_many([key], name).get(key, default)

    def get_many(self, keys: Iterable[Any], name: str | None = None) -> dict[Any, Any]:
        """The values of those keys that exist, in one request."""
        return self._access().get_many(dict.fromkeys(keys), name)

    def join(self, df: DataFrame, on: str | Sequence[str], schema: str | StructType) -> DataFrame:
        """All rows of ``df``, with the columns of ``schema`` filled from the value of the key in column ``on``.

        A value is a dict with the columns' names (of a store: its names); with a single column also the value itself
        if it is no dict. Rows without a match have nulls. One request per Arrow batch. ``on``: several columns, if
        that is what the store's keys are.
        """
        from changelog_state.tables.joining import joined

        return joined(df, self._bound("join").for_tasks(self.settings, df), on, schema)

    def bind(self, service: TablesOfService) -> None:
        """From now on it can be used in this process. A service does that with its tables."""
        self._service = service

    def _access(self) -> LookUps:
        return access_in_task(self.settings) or self._bound("get").access(self.settings)

    def _bound(self, what: str) -> TablesOfService:
        if self._service is None:
            raise ConfigurationError(
                f"global table {self.name} is not connected here, so {what}() has nobody to ask: pass it in "
                "global_tables= of a StateService, and use it in functions of that service's apply(), or in the "
                "process that made the service"
            )
        return self._service


def _from_settings(settings: TableSettings) -> GlobalTable:
    table = GlobalTable.__new__(GlobalTable)
    table.settings, table._service = settings, None
    return table
