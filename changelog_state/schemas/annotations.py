"""Python annotations as Avro schemas."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Final
from uuid import UUID

from changelog_state.codec.json_schema import JSON_SCHEMA
from changelog_state.errors import ConfigurationError
from changelog_state.schemas.bindings import Binding
from changelog_state.schemas.classes import Member, is_record, record_members
from changelog_state.schemas.python_defaults import put_default, put_encoded
from changelog_state.schemas.tree import NO_DEFAULT, Field, Record, parse, walk

__all__ = ["schema_of_annotation"]

_SIMPLE: Final[dict[Any, Any]] = {
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    bool: "boolean",
    None: "null",
    type(None): "null",
    date: {"type": "int", "logicalType": "date"},
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    time: {"type": "long", "logicalType": "time-micros"},
    UUID: {"type": "string", "logicalType": "uuid"},
}
_ANYTHING: Final = f"{JSON_SCHEMA['namespace']}.{JSON_SCHEMA['name']}"
_UNIONS: Final = (typing.Union, types.UnionType)
_DIGITS: Final = (38, 18)  # of a Decimal that does not say: as Spark's
_SUPPORTED: Final = (
    "int, float, str, bytes, bool, datetime, date, time, Decimal, UUID, enums, dataclasses, pydantic models, "
    "list[...], dict[str, ...], X | None and Any"
)


def schema_of_annotation(annotation: Any, where: str) -> tuple[Any, dict[str, Binding]]:
    """``where`` says in errors whose annotation it is."""
    builder = _Builder()
    schema = builder.schema(annotation, where)
    builder.put_defaults(schema)
    return builder.whole(schema), builder.bindings


class _Builder:
    """Knows named types by their names alone until the schema is ``whole``, so that a default may reorder a union."""

    def __init__(self) -> None:
        self.bindings: dict[str, Binding] = {}
        self._definitions: dict[str, dict[str, Any]] = {_ANYTHING: JSON_SCHEMA}
        self._fields: list[tuple[str, dict[str, Any], Member]] = []

    def schema(self, annotation: Any, where: str) -> Any:
        if isinstance(annotation, typing.NewType):
            return self.schema(annotation.__supertype__, where)
        if typing.get_origin(annotation) is Annotated:
            inner, *marks = typing.get_args(annotation)
            if typing.get_origin(inner) in _UNIONS:  # the marks are for its Decimal
                branches = typing.get_args(inner)
                return self._union(
                    [Annotated[(each, *marks)] if each is Decimal else each for each in branches], where
                )
            return _decimal(marks) if inner is Decimal else self.schema(inner, where)
        if annotation is Decimal:
            return _decimal([])
        if annotation is Any or annotation is object:
            return _ANYTHING
        if annotation is list or annotation is dict:
            annotation = list[Any] if annotation is list else dict[str, Any]
        if typing.get_origin(annotation) is not None:
            return self._generic(annotation, where)
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return self._named(annotation, "enum", where)
        kind = is_record(annotation)
        if kind is not None:
            return self._named(annotation, kind, where)
        try:
            found = _SIMPLE[annotation]
        except (KeyError, TypeError):  # TypeError: it cannot be hashed
            raise _unsupported(annotation, where) from None
        return dict(found) if isinstance(found, dict) else found

    def _generic(self, annotation: Any, where: str) -> Any:
        origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in _UNIONS:
            return self._union(inner, where)
        if origin is list:
            (item,) = inner or (Any,)
            return {"type": "array", "items": self.schema(item, f"an item of {where}")}
        if origin is dict:
            key, value = inner or (str, Any)
            if key is str:
                return {"type": "map", "values": self.schema(value, f"a value of {where}")}
        raise _unsupported(annotation, where)

    def _union(self, branches: Sequence[Any], where: str) -> Any:
        in_order = sorted(branches, key=lambda each: each is not type(None))  # null first, the rest as it is
        return [self.schema(each, where) for each in in_order]

    def _named(self, cls: type, kind: str, where: str) -> str:
        name = cls.__name__
        if name not in self.bindings:
            self.bindings[name] = Binding(kind, cls)
            self._definitions[name] = _enum(cls) if kind == "enum" else self._record(cls)
        elif self.bindings[name].cls is not cls:
            raise ConfigurationError(
                f"{where} is of another class {name} than the rest of the declaration; rename one of the two: a "
                "schema knows classes by their names"
            )
        return name

    def _record(self, cls: type) -> dict[str, Any]:
        fields: list[dict[str, Any]] = []
        for member in record_members(cls):
            where = f"{cls.__name__}.{member.name}"
            field: dict[str, Any] = {"name": member.name, "type": self.schema(member.annotation, where)}
            if member.aliases:
                field["aliases"] = list(member.aliases)
            fields.append(field)
            self._fields.append((cls.__name__, field, member))
        return {"type": "record", "name": cls.__name__, "fields": fields}

    def put_defaults(self, schema: Any) -> None:
        """When all types are known: a default may be of any of them."""
        parsed = self._parsed_fields(schema)
        for name, field, member in self._fields:
            if member.default is not NO_DEFAULT:
                put_default(field, parsed[name, member.name].node, member.default, f"{name}.{member.name}")
        parsed = self._parsed_fields(schema)  # now in their final order
        for name, field, member in self._fields:
            if member.default is not NO_DEFAULT:
                put_encoded(field, parsed[name, member.name], member.default)

    def _parsed_fields(self, schema: Any) -> dict[tuple[str, str], Field]:
        records = [each for each in walk(parse(self.whole(schema), self.bindings)) if isinstance(each, Record)]
        return {(record.name, field.name): field for record in records for field in record.fields}

    def whole(self, schema: Any) -> Any:
        """With each named type defined where its name comes first."""
        pending = dict(self._definitions)

        def defined(part: Any) -> Any:
            if isinstance(part, list):
                return [defined(each) for each in part]
            if isinstance(part, str):
                return defined(pending.pop(part)) if part in pending else part
            if part is JSON_SCHEMA:
                return part
            found = {key: defined(each) if key in ("items", "values") else each for key, each in part.items()}
            if "fields" in part:
                found["fields"] = [{**each, "type": defined(each["type"])} for each in part["fields"]]
            return found

        return defined(schema)


def _enum(cls: Any) -> dict[str, Any]:
    return {"type": "enum", "name": cls.__name__, "symbols": [each.name for each in cls]}


def _decimal(marks: Sequence[Any]) -> Any:
    """``Annotated[Decimal, (precision, scale)]``, or what pydantic's ``max_digits`` and ``decimal_places`` say."""
    precision, scale = _DIGITS
    for mark in marks:
        if isinstance(mark, tuple) and len(mark) == 2:
            precision, scale = mark
        precision = getattr(mark, "max_digits", None) or precision
        places = getattr(mark, "decimal_places", None)
        scale = scale if places is None else places
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": min(scale, precision)}


def _unsupported(annotation: Any, where: str) -> ConfigurationError:
    text = getattr(annotation, "__qualname__", None) or repr(annotation)
    return ConfigurationError(f"{where} is declared as {text}, for which there is no Avro type; use {_SUPPORTED}")
