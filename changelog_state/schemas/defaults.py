"""The default of a field: in a schema it is JSON, and read and written it is bytes like any value."""

from __future__ import annotations

from typing import Any

from changelog_state.errors import ConfigurationError
from changelog_state.schemas import tree
from changelog_state.schemas.binary import LONGS
from changelog_state.schemas.plain_writers import WRITERS

__all__ = ["default_bytes"]


def default_bytes(field: tree.Field) -> bytes:
    try:
        return _bytes(field.node, field.default)
    except Exception as error:
        raise ConfigurationError(
            f"an Avro schema is not valid: the default of field {field.name} is {field.default!r}, which does not "
            "fit its type; correct the default"
        ) from error


def _bytes(node: tree.Node, default: Any) -> bytes:
    match node:
        case tree.Leaf("bytes"):
            data = _latin(default)
            return LONGS[len(data)] + data
        case tree.Leaf("float" | "double" as kind):
            return WRITERS[kind](float(default))  # infinity and NaN are no JSON numbers, but strings
        case tree.Leaf(kind):
            return WRITERS[kind](default)
        case tree.Fixed():
            data = _latin(default)
            if len(data) != node.size:
                raise ValueError(f"{len(data)} bytes are not {node.size}")
            return data
        case tree.Enum():
            return LONGS[node.symbols.index(default)]
        case tree.Array(items):
            return _block([_bytes(items, each) for each in default])
        case tree.Map(values):
            return _block([WRITERS["string"](key) + _bytes(values, each) for key, each in default.items()])
        case tree.Record():
            given = {each.name: each.default for each in node.fields if each.default is not tree.NO_DEFAULT} | default
            return b"".join(_bytes(each.node, given[each.name]) for each in node.fields)
        case tree.Union(branches):
            return _branch(branches, default)
        case tree.Anything():
            return _bytes(node.inner, default["value"])
    raise TypeError(f"{type(node).__name__} has no default")


def _latin(default: str) -> bytes:
    """Bytes in JSON: a character for each."""
    return default.encode("latin-1")


def _block(items: list[bytes]) -> bytes:
    return b"".join([LONGS[len(items)], *items, b"\x00"]) if items else b"\x00"


def _branch(branches: list[tree.Node], default: Any) -> bytes:
    """Avro before 1.12 wants the first branch; the others are for schemas that were written for later versions."""
    for number, branch in enumerate(branches):
        try:
            return LONGS[number] + _bytes(branch, default)
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError):
            continue  # another branch may take it
    raise TypeError(f"no branch takes {default!r}")
