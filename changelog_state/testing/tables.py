"""Global tables of a test: their values are given, and nobody is asked."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from changelog_state.errors import ConfigurationError, InvalidInputError

if TYPE_CHECKING:
    from changelog_state.tables.table import GlobalTable

__all__ = ["GivenTable"]


class GivenTable:
    def __init__(self, table: GlobalTable, values: Mapping[Any, Any]) -> None:
        self.settings = table.settings
        self._values = dict(values)
        plain = [key for key, value in self._values.items() if not isinstance(value, Mapping)]
        if self.settings.store is not None and plain:
            raise ConfigurationError(
                f"global table {table.name} follows a store, but its value of key {plain[0]!r} is "
                f"{self._values[plain[0]]!r}; give a dict of names and values for each key"
            )

    def get_many(self, keys: Iterable[Any], name: str | None) -> dict[Any, Any]:
        """Copies, so that a function may change what it gets."""
        found = {key: self._values[key] for key in keys if key in self._values}
        if name is not None:
            if self.settings.store is None:
                raise InvalidInputError(
                    f"global table {self.settings.name} follows a plain topic, whose values have no names, but "
                    f"{name!r} was asked for; leave it out (for what to return if there is nothing, say default=)"
                )
            found = {key: values[name] for key, values in found.items() if name in values}
        return copy.deepcopy(found)

    def close(self) -> None:
        """Nothing is held."""
