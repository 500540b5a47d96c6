"""Which written type can be read as which declared one, each looked at by itself (pure)."""

from __future__ import annotations

from typing import Final

from changelog_state.schemas import tree

__all__ = ["branch_for", "fields_of", "fits", "has_logical"]

PROMOTIONS: Final = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}

_NAMED: Final = (tree.Record, tree.Enum, tree.Fixed)


def fits(written: tree.Node, declared: tree.Node) -> bool:
    """For types without others inside, whether the one can be read as the other; for others, whether the kind can."""
    match written, declared:
        case tree.Leaf(kind, logical), tree.Leaf(wanted, wanted_logical):
            if logical is not None or wanted_logical is not None:
                # A decimal may get more digits, but each must keep its place.
                return (kind, logical) == (wanted, wanted_logical) and _digits(written) <= _digits(declared)
            return kind == wanted or (kind, wanted) in PROMOTIONS
        case tree.Fixed(), tree.Fixed():
            same = (written.size, written.logical) == (declared.size, declared.logical)
            return same and _digits(written) <= _digits(declared)
        case tree.Enum(), tree.Enum():
            return declared.default is not None or set(written.symbols) <= set(declared.symbols)
        case _, tree.Anything():
            return not has_logical(written)
        case tree.Anything(), _:
            return True
    return type(written) is type(declared)


def _digits(node: tree.Leaf | tree.Fixed) -> int:
    return node.logical.precision if node.logical else 0


def branch_for(written: tree.Node, declared: tree.Node, alone: bool = True) -> tree.Node | None:
    """The branch of a declared union (or the declared type) that reads a written type.

    What is the same comes before what is only wide enough. Named types are the same if their names or aliases are,
    or if there is one of the kind on both sides: ``alone``.
    """
    branches = declared.branches if isinstance(declared, tree.Union) else [declared]
    fitting = [each for each in branches if fits(written, each)]
    same = [each for each in fitting if _same(written, each)]
    if same:
        return same[0]
    if isinstance(written, _NAMED):
        of_kind = [each for each in fitting if type(each) is type(written)]
        if alone and len(of_kind) == 1:
            return of_kind[0]
        fitting = [each for each in fitting if each is tree.ANYTHING]
    return fitting[0] if fitting else None


def _same(written: tree.Node, declared: tree.Node) -> bool:
    if isinstance(written, _NAMED) and isinstance(declared, _NAMED):
        names = {name.rpartition(".")[2] for name in (declared.name, *declared.aliases)}
        return written.name.rpartition(".")[2] in names
    if isinstance(written, tree.Leaf) and isinstance(declared, tree.Leaf):
        return written.kind == declared.kind
    return type(written) is type(declared)


def fields_of(written: tree.Record, declared: tree.Record) -> list[tuple[tree.Field, tree.Field | None]]:
    """Each written field with the declared one that it fills, by name, or else by alias."""
    names = {each.name: each for each in declared.fields}
    present = {each.name for each in written.fields}
    aliases = {
        alias: each for each in declared.fields if each.name not in present for alias in each.aliases
    }  # a field that is there under its own name needs none
    found: list[tuple[tree.Field, tree.Field | None]] = []
    for each in written.fields:
        target = names.get(each.name) or aliases.get(each.name)
        taken = any(target is other for _, other in found)
        found.append((each, None if taken else target))
    return found


def has_logical(node: tree.Node) -> bool:
    """Whether a value may hold what the built-in schema cannot: times, decimals, UUIDs."""
    return any(getattr(each, "logical", None) is not None for each in tree.walk(node))
