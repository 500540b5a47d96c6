"""The lines of Python that write and read a plain field, or one that may be null; ``record_code`` puts them together.

``{v}`` is the variable of the field. Values are checked on the way: what is not exactly of the type is handed to a
function that takes it or raises.
"""

from __future__ import annotations

from typing import Any, Final

from changelog_state.codec.longs import read_long
from changelog_state.schemas import tree
from changelog_state.schemas.binary import LONGS, pack_double, read_size, unpack_double
from changelog_state.schemas.plain_writers import as_float, as_int, as_str, write_bool

__all__ = ["NAMES", "layout", "read_lines", "write_lines"]

NAMES: Final[dict[str, Any]] = {
    "LONGS": LONGS,
    "as_float": as_float,
    "as_int": as_int,
    "as_str": as_str,
    "pack_double": pack_double,
    "read_long": read_long,
    "read_size": read_size,
    "unpack_double": unpack_double,
    "write_bool": write_bool,
}

# Per kind: what checks and converts the variable, and the bytes that it then stands for.
_WRITE: Final[dict[str, tuple[list[str], list[str]]]] = {
    "long": (["if type({v}) is not int: {v} = as_int({v})"], ["LONGS[{v}]"]),
    "double": (["if type({v}) is not float: {v} = as_float({v})"], ["pack_double({v})"]),
    "boolean": ([], [r"(b'\1' if {v} is True else b'\0' if {v} is False else write_bool({v}))"]),
    "string": (
        ["if type({v}) is not str: {v} = as_str({v})", "{v} = {v}.encode()"],
        ["LONGS[len({v})]", "{v}"],
    ),
}
# And from bytes to the variable. A byte with a bit of 129 set is a number that is negative, or has more bytes.
_READ: Final[dict[str, list[str]]] = {
    "long": [
        "{v} = data[pos]",
        "if {v} & 129: {v}, pos = read_long(data, pos)",
        "else: {v} >>= 1; pos += 1",
    ],
    "double": ["{v}, = unpack_double(data, pos)", "pos += 8"],
    "boolean": [
        "if data[pos] > 1: raise ValueError(f'{{data[pos]}} is not a boolean')",
        "{v} = data[pos] == 1",
        "pos += 1",
    ],
    "string": [
        "end = data[pos]",
        "if end & 129: end, pos = read_size(data, pos)",
        "else: end >>= 1; pos += 1",
        "end += pos",
        "{v} = data[pos:end].decode()",
        "pos = end",
    ],
}


def layout(node: tree.Node) -> tuple[str, ...]:
    """The plain kinds that a node's bytes are made of, ("null", "string") for instance; () if there is no snippet."""
    branches = node.branches if isinstance(node, tree.Union) else [node]
    kinds = tuple(each.kind for each in branches if isinstance(each, tree.Leaf) and each.logical is None)
    inner = [kind for kind in kinds if kind != "null"]
    known = len(kinds) == len(branches) and len(inner) == 1 and inner[0] in _READ
    return kinds if known and (not isinstance(node, tree.Union) or len(kinds) == 2) else ()


def write_lines(kinds: tuple[str, ...], variable: str) -> tuple[list[str], list[str]]:
    """Lines, and the expressions of the bytes that they leave."""
    (kind,) = [each for each in kinds if each != "null"]
    lines, parts = ([text.format(v=variable) for text in texts] for texts in _WRITE[kind])
    if len(kinds) == 1:
        return lines, parts
    null, other = kinds.index("null"), kinds.index(kind)
    found = [f"if {variable} is None: {variable} = {LONGS[null]!r}", "else:", *(f"    {line}" for line in lines)]
    return [*found, f"    {variable} = {' + '.join([repr(LONGS[other]), *parts])}"], [variable]


def read_lines(kinds: tuple[str, ...], variable: str) -> list[str]:
    (kind,) = [each for each in kinds if each != "null"]
    lines = [line.format(v=variable) for line in _READ[kind]]
    if len(kinds) == 1:
        return lines
    null, other = (LONGS[kinds.index(each)][0] for each in ("null", kind))
    return [
        "branch = data[pos]",
        "pos += 1",
        f"if branch == {null}: {variable} = None",
        f"elif branch == {other}:",
        *(f"    {line}" for line in lines),
        "else: raise ValueError(f'{branch} is not a branch of the union')",
    ]
