"""Declarations of a processor's state: by Spark's schemas, and with names that need not be attributes."""

from __future__ import annotations

from dataclasses import dataclass, field

from changelog_state.state.ttl import ttl_of
from changelog_state.state.variables import List, Map, Value

__all__ = ["RowList", "RowMap", "RowValue"]


@dataclass(frozen=True)
class RowValue(Value):
    """``type`` is the codec itself, here and in a list; in a map it is ``values``."""

    def __post_init__(self) -> None:
        _settle(self, self.type)


@dataclass(frozen=True)
class RowList(List):
    def __post_init__(self) -> None:
        _settle(self, self.type)


@dataclass(frozen=True)
class RowMap(Map):
    key_types: str | None = field(default=None, kw_only=True)

    @property
    def key_form(self) -> str | None:
        return self.key_types

    def __post_init__(self) -> None:
        _settle(self, self.values)


def _settle(variable: Value | List | Map, codec: object) -> None:
    object.__setattr__(variable, "codec", codec)
    object.__setattr__(variable, "lifetime", ttl_of(variable.ttl))
