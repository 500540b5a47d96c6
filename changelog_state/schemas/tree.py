"""An Avro schema as a tree of nodes, in which every name has become the node that it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro

from changelog_state.codec.json_schema import JSON_SCHEMA
from changelog_state.errors import ConfigurationError
from changelog_state.schemas.bindings import Binding
from changelog_state.schemas.logical import BIGINT, Logical, logical_of

__all__ = ["ANYTHING", "NO_DEFAULT", "Anything", "Array", "Enum", "Field", "Fixed", "Leaf", "Map", "Node", "Record"]
__all__ += ["ENCODED_DEFAULT", "Union", "is_name", "parse", "walk"]

_ANYTHING_NAME: Final = f"{JSON_SCHEMA['namespace']}.{JSON_SCHEMA['name']}"
NO_DEFAULT: Final = object()
ENCODED_DEFAULT: Final = "changelog_state.default"
"""Beside a field's default in JSON, where bytes, text and others look alike: its bytes, a character for each."""


class Node:
    """One type of a schema. Compared by identity: a schema may contain itself."""


@dataclass(eq=False)
class Leaf(Node):
    kind: str
    logical: Logical | None = None


@dataclass(eq=False)
class Fixed(Node):
    name: str
    size: int
    aliases: tuple[str, ...] = ()
    logical: Logical | None = None


@dataclass(eq=False)
class Enum(Node):
    name: str
    symbols: tuple[str, ...]
    default: str | None
    aliases: tuple[str, ...]
    binding: Binding | None


@dataclass(eq=False)
class Array(Node):
    items: Node


@dataclass(eq=False)
class Map(Node):
    values: Node


@dataclass(eq=False)
class Union(Node):
    branches: list[Node]


@dataclass(eq=False)
class Field:
    name: str
    node: Node
    aliases: tuple[str, ...]
    default: Any
    encoded: bytes | None = None
    """The default as it is written, where its JSON could be several things."""


@dataclass(eq=False)
class Record(Node):
    name: str
    aliases: tuple[str, ...]
    binding: Binding | None
    fields: list[Field] = field(default_factory=list)


@dataclass(eq=False)
class Anything(Node):
    """The built-in schema, where a place in a declared one may hold any value."""

    inner: Union = field(default_factory=lambda: Union([]))


ANYTHING: Final = Anything()
ANYTHING.inner.branches = [Leaf(kind) for kind in ("null", "boolean", "long", "double", "string", "bytes")]
# Records with one field: their bytes are those of the field.
ANYTHING.inner.branches += [Array(ANYTHING), Map(ANYTHING), Leaf("bytes", BIGINT)]


def walk(node: Node) -> Iterator[Node]:
    """The node and all inside, each once; without what any value may be made of."""
    seen: set[Node] = {ANYTHING}
    pending = [node]
    while pending:
        each = pending.pop()
        if each not in seen:
            seen.add(each)
            yield each
            pending += _inside(each)


def _inside(node: Node) -> list[Node]:
    match node:
        case Array(inner) | Map(inner):
            return [inner]
        case Union(branches):
            return branches
        case Record():
            return [each.node for each in node.fields]
        case _:
            return []


def is_name(name: str) -> bool:
    """Of a type or field, with its namespace. Letters and digits of all alphabets, as Java's Avro has it."""
    return all(
        (part[:1] == "_" or part[:1].isalpha())
        and all(each <= "\uffff" and (each == "_" or each.isalpha() or each.isdecimal()) for each in part)
        for part in name.split(".")
    )


def parse(schema: Any, bindings: Mapping[str, Binding] | None = None) -> Node:
    """The tree of a schema that is valid; ``bindings`` say which named types have a Python class."""
    named: dict[str, Any] = {}
    try:
        parsed = fastavro.parse_schema(schema, named)
        return _Parser(named, bindings or {}).node(parsed)
    except ConfigurationError:
        raise
    except Exception as error:
        raise _invalid(repr(error), schema) from error


def _invalid(reason: str, schema: Any) -> ConfigurationError:
    return ConfigurationError(f"an Avro schema is not valid: {reason}; correct {schema!r}")


class _Parser:
    def __init__(self, named: Mapping[str, Any], bindings: Mapping[str, Binding]) -> None:
        self._named = named
        self._bindings = bindings
        self._nodes: dict[str, Node] = {_ANYTHING_NAME: ANYTHING}

    def node(self, schema: Any) -> Node:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self.node(self._named[schema]) if schema in self._named else Leaf(schema)
        kind = schema["type"]
        if kind == "array":
            return Array(self.node(schema["items"]))
        if kind == "map":
            return Map(self.node(schema["values"]))
        if "name" not in schema:
            return Leaf(kind, logical_of(schema))
        name = schema["name"]
        if name not in self._nodes:
            self._nodes[name] = self._named_node(kind, name, schema)
        return self._nodes[name]

    def _named_node(self, kind: str, name: str, schema: dict[str, Any]) -> Node:
        if not is_name(name):
            raise _invalid(f"{name!r} is not a name", schema)
        aliases, binding = tuple(schema.get("aliases", ())), self._bindings.get(name)
        if kind == "fixed":
            return Fixed(name, schema["size"], aliases, logical_of(schema))
        if kind == "enum":
            return Enum(name, tuple(schema["symbols"]), schema.get("default"), aliases, binding)
        record = Record(name, aliases, binding)
        self._nodes[name] = record  # before its fields: they may refer to it
        for each in schema["fields"]:
            if not is_name(each["name"]) or any(each["name"] == known.name for known in record.fields):
                raise _invalid(f"{each['name']!r} is not a name, or there twice, in {name}", schema)
            encoded = each.get(ENCODED_DEFAULT)
            found = Field(
                each["name"],
                self.node(each["type"]),
                tuple(each.get("aliases", ())),
                each.get("default", NO_DEFAULT),
                None if encoded is None else encoded.encode("latin-1"),
            )
            record.fields.append(found)
        return record

    def _union(self, schema: list[Any]) -> Union:
        branches = [self.node(each) for each in schema]
        # Avro's rule: a value's branch must be told from its type alone. Logical types do not count.
        types = [(type(each), getattr(each, "kind", None) or getattr(each, "name", None)) for each in branches]
        if Union in (kind for kind, _ in types) or len(set(types)) < len(types):
            raise _invalid("a union contains a union, or one type twice (with a logical type or without)", schema)
        return Union(branches)
