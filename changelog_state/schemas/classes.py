"""The fields of dataclasses and pydantic models."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from changelog_state.errors import ConfigurationError
from changelog_state.schemas.bindings import key_of
from changelog_state.schemas.tree import NO_DEFAULT

__all__ = ["Aliases", "Member", "aliased", "is_record", "record_members"]


@dataclass(frozen=True)
class Aliases:
    names: tuple[str, ...]


def aliased(*names: str) -> Aliases:
    """The names that a field had before: ``full_name: Annotated[str, aliased("name")]``."""
    return Aliases(names)


@dataclass(frozen=True)
class Member:
    name: str
    annotation: Any
    default: Any
    aliases: tuple[str, ...]


def is_record(cls: Any) -> str | None:
    """The kind of class, if its instances are records."""
    if not isinstance(cls, type):
        return None
    # Who has a model has imported pydantic: it need not be installed.
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        return "model"
    return "dataclass" if dataclasses.is_dataclass(cls) else None


def record_members(cls: Any) -> Iterator[Member]:
    return _dataclass_members(cls) if is_record(cls) == "dataclass" else _model_members(cls)


def _dataclass_members(cls: Any) -> Iterator[Member]:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, AttributeError) as error:
        raise ConfigurationError(
            f"an annotation of {cls.__name__} cannot be resolved ({error}); define {cls.__name__} and the types of "
            "its fields at the top of a module"
        ) from error
    fields = dataclasses.fields(cls)
    if set(inspect.signature(cls).parameters) != {each.name for each in fields if each.init}:
        raise ConfigurationError(
            f"{cls.__name__} cannot be made again from its fields, because its constructor takes something else "
            f"{inspect.signature(cls)}; leave its __init__ to dataclass, and have no InitVar"
        )
    pydantic = sys.modules.get("pydantic") if hasattr(cls, "__pydantic_fields__") else None  # a dataclass of its own
    for each in fields:
        # By type: a class that was pickled by value has brought a MISSING of its own.
        missing = type(dataclasses.MISSING)
        factory: Any = each.default_factory
        default = NO_DEFAULT if isinstance(each.default, missing) else each.default
        if not isinstance(factory, missing):
            default = _made(factory)
        if pydantic is not None and isinstance(default, pydantic.fields.FieldInfo):
            default = _default_in(default)
        annotation = hints[each.name]
        aliases = (*each.metadata.get("aliases", ()), *_aliases_in(annotation))
        yield Member(each.name, annotation, default, aliases)


def _model_members(cls: Any) -> Iterator[Member]:
    if cls.model_config.get("extra") == "allow":
        raise ConfigurationError(
            f"{cls.__name__} takes fields that it does not declare (extra='allow'), which would be lost; declare "
            "them, or a field of type dict"
        )
    if cls.__pydantic_root_model__:
        raise ConfigurationError(f"{cls.__name__} is a RootModel, which has no fields; declare its root type instead")
    for name, info in cls.model_fields.items():
        if key_of(cls, name) is None:
            raise ConfigurationError(
                f"{cls.__name__}.{name} is only filled from inside another value ({info.validation_alias}), so that "
                "it could not be made again from its own; add a plain name to its aliases with AliasChoices, or say "
                "validate_by_name=True in the model's config"
            )
        # pydantic has taken the annotation's extras apart; a Decimal needs its digits back.
        annotation = typing.Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation
        extra = info.json_schema_extra
        named = extra.get("aliases", ()) if isinstance(extra, Mapping) else ()
        yield Member(name, annotation, _default_in(info), (*named, *_aliases_in(annotation)))


def _default_in(info: Any) -> Any:
    """Of what pydantic knows of a field."""
    if info.default_factory is None:
        return NO_DEFAULT if info.is_required() else info.default
    takes_data = getattr(info, "default_factory_takes_validated_data", False)
    return NO_DEFAULT if takes_data else _made(info.default_factory)


def _aliases_in(annotation: Any) -> Iterator[str]:
    """Those of an annotation, and of the branches of a union."""
    if typing.get_origin(annotation) in (typing.Annotated, typing.Union, types.UnionType):
        for inner in typing.get_args(annotation):
            yield from inner.names if isinstance(inner, Aliases) else _aliases_in(inner)


def _made(factory: Callable[[], Any]) -> Any:
    """A factory's value, if it is a constant: with the time or a random number, every start had another schema."""
    first, second = factory(), factory()
    return first if first == second else NO_DEFAULT
