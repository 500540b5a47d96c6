"""Why a value was not written: the smallest part of it that does not fit, and what is declared there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from changelog_state.codec.json_schema import MAX_DEPTH
from changelog_state.codec.json_writer import unsupported
from changelog_state.schemas import tree
from changelog_state.schemas.wording import type_text
from changelog_state.schemas.writing import Writers

__all__ = ["explain"]

_LONGEST = 80


def explain(writers: Writers, node: tree.Node, value: Any, path: str, depth: int = 0) -> str:
    """To be asked only about a value that could not be written."""
    path = path if len(path) <= _LONGEST else path[:_LONGEST] + "…"
    error = _raised(writers, node, value)
    if depth > MAX_DEPTH or isinstance(error, RecursionError):
        return f"{path} is nested too deeply, or contains itself"
    for inner, part, part_path in _parts(writers, node, value, path):
        if _raised(writers, inner, part) is not None:
            return explain(writers, inner, part, part_path, depth + 1)
    if isinstance(node, tree.Anything):
        return f"{path}: {unsupported(value)}"
    named = _field_names(writers, node, value)
    if named is not None:
        missing, unknown = named
        if missing:
            return f"{path} has no {', '.join(missing)} (declared in {type_text(node)}, without a default)"
        if unknown:
            return f"{path} has {', '.join(map(repr, unknown))}, which {type_text(node)} does not declare"
    text = repr(value)
    shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    reason = f" ({error})" if isinstance(error, ValueError | ArithmeticError) else ""
    return f"{path} is {shown} of type {type(value).__qualname__}, but {_declared(writers, node)} is declared{reason}"


def _raised(writers: Writers, node: tree.Node, value: Any) -> Exception | None:
    try:
        writers(node)(value)
    except Exception as error:
        return error
    return None


def _cls(writers: Writers, node: tree.Node) -> type | None:
    binding = getattr(node, "binding", None)
    return None if binding is None or writers.plain else binding.cls


def _declared(writers: Writers, node: tree.Node) -> str:
    cls = _cls(writers, node)
    return type_text(node) if cls is None else cls.__qualname__


def _field_names(writers: Writers, node: tree.Node, value: Any) -> tuple[list[str], list[str]] | None:
    if not isinstance(node, tree.Record) or _cls(writers, node) is not None:
        return None
    fields = _as_fields(node, value)
    if fields is None:
        return None
    needed = [each.name for each in node.fields if each.default is tree.NO_DEFAULT]
    return [name for name in needed if name not in fields], [
        name for name in fields if name not in {each.name for each in node.fields}
    ]


def _as_fields(node: tree.Record, value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, tuple):
        return dict(zip(getattr(value, "__fields__", [each.name for each in node.fields]), value, strict=False))
    return value if isinstance(value, Mapping) else None


def _parts(writers: Writers, node: tree.Node, value: Any, path: str) -> Iterator[tuple[tree.Node, Any, str]]:
    match node:
        case tree.Array(items) if isinstance(value, list | tuple):
            yield from ((items, each, f"{path}[{number}]") for number, each in enumerate(value))
        case tree.Map(values) if isinstance(value, Mapping):
            yield from ((tree.Leaf("string"), each, f"a key of {path}") for each in value)
            yield from ((values, each, f"{path}[{key!r}]") for key, each in value.items())
        case tree.Union(branches) if value is not None:
            others = [each for each in branches if not (isinstance(each, tree.Leaf) and each.kind == "null")]
            if len(others) == 1 and len(branches) == 2:
                yield others[0], value, path
        case tree.Record():
            yield from _field_parts(_cls(writers, node), node, value, path)


def _field_parts(cls: type | None, node: tree.Record, value: Any, path: str) -> Iterator[tuple[tree.Node, Any, str]]:
    fields = _as_fields(node, value) if cls is None else None
    for each in node.fields:
        if fields is not None and each.name in fields:
            yield each.node, fields[each.name], f"{path}.{each.name}"
        elif cls is not None and type(value) is cls and hasattr(value, each.name):
            yield each.node, getattr(value, each.name), f"{path}.{each.name}"
