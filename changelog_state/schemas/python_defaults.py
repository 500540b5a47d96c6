"""The default of a field in Python as the default of a schema, which is JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from changelog_state.codec.json_writer import write_body
from changelog_state.errors import ConfigurationError
from changelog_state.schemas import tree
from changelog_state.schemas.binary import read_size
from changelog_state.schemas.defaults import default_bytes
from changelog_state.schemas.logical import BIGINT
from changelog_state.schemas.writing import Writers

__all__ = ["default_json", "put_default", "put_encoded"]


def put_default(field: dict[str, Any], node: tree.Node, default: Any, where: str) -> None:
    """Add a default to a field's schema. Avro wants the branch of a default to be the first one of its union."""
    try:
        if isinstance(node, tree.Union):
            first = _branch(node, default)
            field["type"] = [field["type"][first], *(each for n, each in enumerate(field["type"]) if n != first)]
        field["default"] = default_json(node, default)
    except Exception as error:
        raise ConfigurationError(
            f"{where} has the default {default!r}, which is not of its declared type; correct one of them"
        ) from error


def put_encoded(field: dict[str, Any], parsed: tree.Field, default: Any) -> None:
    """Add the bytes of a default whose JSON would be read as something else, such as bytes as text."""
    encoded = Writers()(parsed.node)(default)
    if default_bytes(parsed) != encoded:
        field[tree.ENCODED_DEFAULT] = encoded.decode("latin-1")


def _branch(node: tree.Union, value: Any) -> int:
    return Writers()(node)(value)[0] >> 1


def default_json(node: tree.Node, value: Any) -> Any:
    match node:
        case tree.Leaf(_, logical) if logical is BIGINT:
            data = write_body(value)
            return {"value": data[read_size(data, 1)[1] :].decode("latin-1")}
        case tree.Leaf(kind, logical):
            Writers()(node)(value)  # raises if it does not fit
            raw = value if logical is None else logical.to_raw(value)
            return _leaf(kind, raw)
        case tree.Fixed(logical=logical):
            return bytes(value if logical is None else logical.to_raw(value)).decode("latin-1")
        case tree.Enum(binding=binding):
            return value if binding is None else value.name
        case tree.Array(items):
            return [default_json(items, each) for each in value]
        case tree.Map(values):
            return {key: default_json(values, each) for key, each in value.items()}
        case tree.Record():
            get = value.__getitem__ if isinstance(value, dict) else lambda name: getattr(value, name)
            return {each.name: default_json(each.node, get(each.name)) for each in node.fields}
        case tree.Union(branches):
            return default_json(branches[_branch(node, value)], value)
        case tree.Anything():
            return {"value": default_json(node.inner.branches[write_body(value)[0] >> 1], value)}
    raise TypeError(f"{type(node).__name__} has no default")


def _leaf(kind: str, raw: Any) -> Any:
    if kind == "bytes":
        return bytes(raw).decode("latin-1")
    if kind in ("float", "double"):
        number = float(raw)  # infinity and NaN are no JSON numbers, so they are strings
        return number if math.isfinite(number) else json.dumps(number)
    if kind in ("int", "long"):
        return int(raw)
    return raw
