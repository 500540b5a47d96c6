"""The default of a field: in a schema it is JSON, and read and written it is bytes like any value."""

from __future__ import annotations

from typing import Any, Final

from changelog_state.errors import ConfigurationError
from changelog_state.schemas import tree
from changelog_state.schemas.binary import LONGS
from changelog_state.schemas.logical import BIGINT
from changelog_state.schemas.plain_writers import WRITERS

__all__ = ["default_bytes"]

_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")  # strings in JSON


def default_bytes(field: tree.Field) -> bytes:
    try:
        return _of_field(field)
    except Exception as error:
        raise ConfigurationError(
            f"an Avro schema is not valid: the default of field {field.name} is {field.default!r}, which does not "
            "fit its type; correct the default"
        ) from error


def _of_field(field: tree.Field) -> bytes:
    return _bytes(field.node, field.default) if field.encoded is None else field.encoded


def _bytes(node: tree.Node, default: Any) -> bytes:
    """Only what JSON has for the type is taken: in a union the others must have their turn."""
    match node:
        case tree.Leaf("bytes", logical) if logical is BIGINT:
            return _bytes(tree.Leaf("bytes"), default["value"])
        case tree.Leaf("bytes"):
            data = _latin(default)
            return LONGS[len(data)] + data
        case tree.Leaf("float" | "double" as kind):
            return WRITERS[kind](float(default) if default in _NO_NUMBERS else default)
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
            return _block([_bytes(items, each) for each in _need(default, list)])
        case tree.Map(values):
            entries = _need(default, dict).items()
            return _block([WRITERS["string"](key) + _bytes(values, each) for key, each in entries])
        case tree.Record():
            if not _need(default, dict).keys() <= {each.name for each in node.fields}:
                raise ValueError(f"{default!r} has fields that {node.name} does not have")
            return b"".join(
                _bytes(each.node, default[each.name]) if each.name in default else _of_field(each)
                for each in node.fields
            )
        case tree.Union(branches):
            return _branch(branches, default)
        case tree.Anything():
            return _bytes(node.inner, default["value"])
    raise TypeError(f"{type(node).__name__} has no default")


def _need(default: Any, kind: type) -> Any:
    if not isinstance(default, kind):
        raise TypeError(f"{default!r} is not {kind.__name__}")
    return default


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
