"""Declarations of what a key's state consists of: given once to the service, reached as attributes of ``state``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from changelog_state.codec.entries import name_suffix
from changelog_state.durations import Duration
from changelog_state.errors import ConfigurationError
from changelog_state.schemas.declarations import Declared
from changelog_state.schemas.declared import codec_for
from changelog_state.schemas.value_codec import ValueCodec as DeclaredCodec
from changelog_state.state.codecs import ANY, ValueCodec
from changelog_state.state.ttl import Ttl, ttl_of

__all__ = ["List", "Map", "Value", "Variable", "by_name", "declared_types"]

PREFETCHED_ENTRIES = 100
_UNCHANGEABLE = (type(None), bool, int, float, str, bytes)
_KEY_FORMS: Mapping[Any, str] = {
    str: "string",
    bytes: "binary",
    int: "bigint",
    bool: "boolean",
    float: "double",
    tuple: "tuple",
}
"""As Spark calls them, whose types a map's keys may be declared with, too."""


@dataclass(frozen=True)
class _Variable:
    name: str
    type: Any = None
    """What its values are (see docs/SCHEMAS.md); None: anything that the built-in schema can hold."""
    ttl: Duration | Ttl | None = field(default=None, kw_only=True)
    migrate: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    """From a value that was written with another schema to one of this type."""
    codec: ValueCodec = field(init=False, repr=False, compare=False)
    lifetime: Ttl | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier() or self.name.startswith("_"):
            raise ConfigurationError(
                f"a state variable is called {self.name!r}; use a name that can be an attribute, as in state.total"
            )
        name_suffix(self.name)
        object.__setattr__(self, "codec", codec_of(self._value_type, self.name, self.migrate))
        object.__setattr__(self, "lifetime", ttl_of(self.ttl))

    @property
    def _value_type(self) -> Any:
        return self.type


@dataclass(frozen=True)
class Value(_Variable):
    """One value: ``state.total`` reads it, ``state.total = 3`` writes it, ``del state.total`` forgets it."""

    kind: ClassVar[str] = "value"
    default: Any = field(default=None, kw_only=True)
    """What reading gives if there is none; a function is called for it."""

    def missing(self) -> Any:
        if isinstance(self.default, _UNCHANGEABLE):
            return self.default
        return self.default() if callable(self.default) else copy.deepcopy(self.default)


@dataclass(frozen=True)
class List(_Variable):
    """A list whose entries are records of their own: appending does not write the rest again."""

    kind: ClassVar[str] = "list"
    prefetch: int = field(default=PREFETCHED_ENTRIES, kw_only=True)
    """Entries per key that are read along with the key; the others, when they are asked for."""


@dataclass(frozen=True)
class Map(_Variable):
    """A map whose entries are records of their own, in order of their keys: str, bytes, int, bool, float, tuples."""

    kind: ClassVar[str] = "map"
    # ``type`` is the keys' here, as one says it: Map("by_sku", str, int).
    values: Any = None
    prefetch: int = field(default=PREFETCHED_ENTRIES, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.type is not None and self.type not in tuple(_KEY_FORMS):
            raise ConfigurationError(
                f"keys of map {self.name!r} are declared as {self.type!r}; use str, bytes, int, bool, float or tuple"
            )

    @property
    def _value_type(self) -> Any:
        return self.values

    @property
    def key_form(self) -> str | None:
        """What keys are, in words; None: anything. Stored keys do not tell as what they were declared."""
        return None if self.type is None else _KEY_FORMS[self.type]


Variable: TypeAlias = Value | List | Map


def codec_of(declared: Any, name: str, migrate: Callable[[Any], Any] | None) -> ValueCodec:
    return ANY if declared is None and migrate is None else codec_for(declared, name=name, migrate=migrate)


def declared_types(variables: Mapping[str, Variable]) -> list[Declared]:
    """What of them has to agree with what the store has."""
    found = [Declared(name, variable.kind, _recorded(variable)) for name, variable in variables.items()]
    for name, variable in variables.items():
        if isinstance(variable, Map) and variable.key_form is not None:
            found.append(_declared_keys(name, variable.key_form, variables))
    return found


def _declared_keys(name: str, form: str, variables: Mapping[str, Variable]) -> Declared:
    """A map's keys, as an entry of their own, which records from before there was one do not have."""
    keys = f"{name}[keys]"
    if keys in variables:
        raise ConfigurationError(
            f"state {keys!r} is called as the keys of map {name!r} are in the store's records; use another name"
        )
    return Declared(keys, f"map with {form} keys", codec_for(None, name=keys))


def _recorded(variable: Variable) -> DeclaredCodec:
    codec = variable.codec
    return codec if isinstance(codec, DeclaredCodec) else codec_for(None, name=variable.name)


def by_name(variables: Iterable[Variable], taken: Iterable[str]) -> Mapping[str, Variable]:
    """``taken``: names that ``state`` has already."""
    found: dict[str, Variable] = {}
    for variable in variables:
        if not isinstance(variable, (Value, List, Map)):
            raise ConfigurationError(f"state= has {variable!r}; give a list of Value, List and Map")
        if variable.name in found:
            raise ConfigurationError(f"state variable {variable.name!r} is declared twice; give each its own name")
        if variable.name in taken:
            raise ConfigurationError(f"a state variable cannot be called {variable.name!r}: state has a method of it")
        found[variable.name] = variable
    return found
