"""Whether values of every earlier generation can be read as what is declared now: asked before any event (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from changelog_state.codec.avro import SingleObjectCodec
from changelog_state.errors import SchemaEvolutionError
from changelog_state.schemas import tree
from changelog_state.schemas.builtin import PlainCodec
from changelog_state.schemas.declaration import builtin_kind
from changelog_state.schemas.matching import has_logical
from changelog_state.schemas.resolution import Problem, Resolution
from changelog_state.schemas.value_codec import ValueCodec
from changelog_state.schemas.wording import type_text

__all__ = ["check_evolution"]

# Plain types are written with the built-in schema. What may become of them, and what may become one of them.
_FROM_PLAIN: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("boolean",),
    "int": ("long", "float", "double"),
    "float": ("double",),
    "str": ("string",),
    "bytes": ("bytes",),
    "list": ("array",),
    "dict": ("map", "record"),
}
_TO_PLAIN: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("boolean",),
    "int": ("int", "long"),
    "float": ("int", "long", "float", "double"),
    "str": ("string", "enum"),
    "bytes": ("bytes", "fixed"),
    "list": ("array",),
    "dict": ("map", "record"),
}


def check_evolution(name: str, new: ValueCodec, old_schemas: Sequence[str | None]) -> None:
    """Raise unless every value of variable ``name`` can be read.

    ``old_schemas``: the ``declaration`` of each earlier generation. Values that were written without a declaration
    (None) are checked one by one when they are read, with the error or the migration that this needs.
    """
    for old in old_schemas:
        if old is None or old == new.declaration:
            continue
        problems = list(_problems(old, new))
        if problems and _same_fingerprint(old, new):
            raise SchemaEvolutionError(
                f"variable {name} cannot be declared like this: {problems[0]}, but Avro gives both schemas the same "
                "fingerprint, so that old values could not be told from new ones, not even by migrate=; use another "
                "variable name, or rename the record around the field"
            )
        if problems and new.migrate is None:
            found = "; ".join(map(str, problems))
            raise SchemaEvolutionError(
                f"variable {name} has values that cannot be read as it is declared now: {found}; "
                f"{_remedies(problems)}"
            )


def _same_fingerprint(old: str, new: ValueCodec) -> bool:
    return builtin_kind(old) is None and SingleObjectCodec(json.loads(old)).fingerprint == new.fingerprint


def _problems(old: str, new: ValueCodec) -> Iterator[Problem]:
    kind = builtin_kind(old)
    if kind is not None:
        yield from _from_plain(kind, new)
        return
    written = tree.parse(json.loads(old))
    if isinstance(new, PlainCodec):
        name = new.cls.__name__
        if has_logical(written) or not all(_kind(each) in _TO_PLAIN[name] for each in _branches(written)):
            yield Problem("", type_text(written), _python(name))
        return
    resolution = Resolution()
    resolution.reader(written, new.node)
    yield from resolution.problems


def _from_plain(kind: str, new: ValueCodec) -> Iterator[Problem]:
    if isinstance(new, PlainCodec):
        if new.cls.__name__ != kind and (kind, new.cls) != ("int", float):
            yield Problem("", _python(kind), _python(new.cls.__name__))
    elif new.node is not tree.ANYTHING and not any(
        _kind(each) in _FROM_PLAIN[kind] and getattr(each, "logical", None) is None for each in _branches(new.node)
    ):
        yield Problem("", _python(kind), type_text(new.node))


def _python(kind: str) -> str:
    """Said like this, because Avro's int and float are others."""
    return f"Python's {kind}"


def _branches(node: tree.Node) -> list[tree.Node]:
    return node.branches if isinstance(node, tree.Union) else [node]


def _kind(node: tree.Node) -> str:
    return node.kind if isinstance(node, tree.Leaf) else type(node).__name__.lower()


def _remedies(problems: Sequence[Problem]) -> str:
    """What to do, in the order in which one would try it."""
    found = []
    if any(each.written is None for each in problems):
        dropped = sorted({name for each in problems for name in each.dropped})
        renamed = f" (one of {', '.join(dropped)}?)" if dropped else ""
        found.append(f"give a new field a default, or name in its aliases the field{renamed} that it was before")
    if any(each.written is not None for each in problems):
        found.append(
            "keep a field's type, or only widen it (int to long to float to double), or give the new type to a new "
            "field"
        )
    return "; ".join([*found, "or say migrate=func(old) -> new"])
