"""Types as people read them in an error."""

from __future__ import annotations

from changelog_state.schemas import tree

__all__ = ["type_text"]


def type_text(node: tree.Node, depth: int = 0) -> str:
    match node:
        case tree.Leaf(kind, logical):
            return kind if logical is None else _logical_text(logical.name, logical.precision, logical.scale)
        case tree.Fixed(name, size, _, logical):
            return f"fixed {name} of {size} bytes" + (f" ({logical.name})" if logical else "")
        case tree.Enum(name, symbols):
            return f"enum {name} ({', '.join(symbols)})"
        case tree.Array(items):
            return f"array of {type_text(items, depth + 1)}"
        case tree.Map(values):
            return f"map of {type_text(values, depth + 1)}"
        case tree.Union(branches):
            text = " or ".join(type_text(branch, depth + 1) for branch in branches)
            return f"({text})" if depth else text
        case tree.Record(name):
            return f"record {name}"
        case _:
            return "any value"


def _logical_text(name: str, precision: int, scale: int) -> str:
    return f"{name}({precision}, {scale})" if precision else name
