"""From the tree of a schema to functions that write its values. What does not fit raises; ``explain`` says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from changelog_state.codec.json_schema import MAX_DEPTH
from changelog_state.codec.json_writer import write_body
from changelog_state.schemas import tree
from changelog_state.schemas.container_writers import (
    Write,
    converted,
    write_array,
    write_enum,
    write_fixed,
    write_map,
    write_union,
)
from changelog_state.schemas.defaults import default_bytes
from changelog_state.schemas.logical import Logical
from changelog_state.schemas.plain_writers import WRITERS
from changelog_state.schemas.record_code import record_writer

__all__ = ["Writers"]


class Writers:
    """One function per node, made when it is first asked for.

    ``plain``: records are given as dicts and enums as strings, whatever classes they have.
    """

    def __init__(self, plain: bool = False) -> None:
        self.plain = plain
        self._made: dict[tree.Node, Write | None] = {}

    def __call__(self, node: tree.Node) -> Write:
        if node not in self._made:
            self._made[node] = None
            self._made[node] = self._make(node)
        made = self._made[node]
        return self._later(node) if made is None else made

    def _later(self, node: tree.Node) -> Write:
        """For a type inside itself. What one process can write, every other one must be able to read."""
        depth = 0

        def write(value: Any) -> bytes:
            nonlocal depth
            if depth == MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} deep")
            depth += 1
            try:
                return self(node)(value)
            finally:
                depth -= 1

        return write

    def _make(self, node: tree.Node) -> Write:
        match node:
            case tree.Leaf(kind, logical):
                return converted(WRITERS[kind], logical)
            case tree.Fixed():
                return converted(write_fixed(node.size), node.logical)
            case tree.Enum():
                return write_enum(node, self.plain)
            case tree.Array(items):
                return write_array(self(items))
            case tree.Map(values):
                return write_map(self(values))
            case tree.Union(branches):
                return write_union([(_classes(each, self.plain), self(each)) for each in branches])
            case tree.Record():
                return self._record(node)
            case _:
                return write_body

    def _record(self, node: tree.Record) -> Write:
        writers = {each.name: self(each.node) for each in node.fields}
        cls = None if self.plain or node.binding is None else node.binding.cls
        defaults = {each.name: default_bytes(each) for each in node.fields if each.default is not tree.NO_DEFAULT}
        positional = not self.plain and node.binding is not None

        def write_other(value: Any) -> bytes:
            """A dict from what else may stand for a record. Unknown fields are not left out silently."""
            if isinstance(value, tuple) and (positional or hasattr(value, "__fields__")):
                value = dict(zip(getattr(value, "__fields__", writers), value, strict=True))
            if not isinstance(value, Mapping) or not value.keys() <= writers.keys():
                raise TypeError(f"{value!r} does not have the fields {', '.join(writers)}")
            parts = []
            for name, write in writers.items():
                parts.append(defaults[name] if name not in value and name in defaults else write(value[name]))
            return b"".join(parts)

        return record_writer(node, list(writers.values()), cls, write_other)


_CLASSES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "string": (str,),
    "bytes": (bytes,),
}


def _classes(node: tree.Node, plain: bool) -> tuple[type, ...]:
    binding = getattr(node, "binding", None)
    if binding is not None and binding.cls is not None and not plain:
        return (binding.cls,)
    match node:
        case tree.Leaf(_, Logical() as logical) | tree.Fixed(logical=Logical() as logical):
            return (logical.cls,)
        case tree.Leaf(kind):
            return _CLASSES[kind]
        case tree.Array():
            return (list, tuple)
        case tree.Map() | tree.Record():
            return (dict,)
        case tree.Enum():
            return (str,)
        case tree.Fixed():
            return (bytes,)
        case _:
            return ()
