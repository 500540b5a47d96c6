"""Reading: values of the schema they were written with, as values of the declared one, by Avro's rules.

A reader is made once for a pair of schemas, and making it finds everything that stands in the way. What is said
before a batch and what is done in it can therefore not differ. Made for a schema and itself, it is the plain reader.

In one thing more is allowed than in Avro: records, enums and fixed outside of unions may change their names, as a
class may; the variable's name says what a value is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from changelog_state.schemas import matching, tree
from changelog_state.schemas.container_readers import read_array, read_map, read_union
from changelog_state.schemas.defaults import default_bytes
from changelog_state.schemas.explain import explain
from changelog_state.schemas.plain_readers import read_enum, read_fixed, read_leaf
from changelog_state.schemas.record_code import Read, record_reader
from changelog_state.schemas.snippets import layout
from changelog_state.schemas.wording import type_text
from changelog_state.schemas.writing import Writers

__all__ = ["MisfitError", "Problem", "Resolution"]


@dataclass(frozen=True)
class Problem:
    """``written`` is None for a field that is new and has no default."""

    path: str
    written: str | None
    declared: str
    dropped: tuple[str, ...] = ()
    """Fields beside a new one that are not declared any more: it may be one of them under another name."""

    def __str__(self) -> str:
        where = f"its value{self.path}" if self.path[:1] in ("", "[", "{") else f"field {self.path}"
        if self.written is None:
            return f"{where} ({self.declared}) is new and has no default"
        return f"{where} was {self.written} and is {self.declared}"


class MisfitError(ValueError):
    """A value of the built-in schema is not what is declared."""


class Resolution:
    """After ``reader``, the function is good for use only if there are no ``problems``."""

    def __init__(self, variable: str = "value") -> None:
        self._variable = variable
        self.problems: list[Problem] = []
        self._made: dict[tuple[tree.Node, tree.Node], Read | None] = {}

    def reader(self, written: tree.Node, declared: tree.Node, path: str = "") -> Read:
        pair = written, declared
        if pair not in self._made:
            self._made[pair] = None
            self._made[pair] = self._make(written, declared, path)
        made = self._made[pair]
        # A type inside itself is looked up when it is read: by then it has been made.
        return (lambda data, pos: self._finished(pair)(data, pos)) if made is None else made

    def _finished(self, pair: tuple[tree.Node, tree.Node]) -> Read:
        made = self._made[pair]
        assert made is not None
        return made

    def _make(self, written: tree.Node, declared: tree.Node, path: str) -> Read:
        match written, declared:
            case tree.Anything(), tree.Anything():
                return self.reader(written.inner, declared.inner, path)
            case tree.Anything(), _:
                return self._fitting(declared, path)
            case _, tree.Anything() if not matching.has_logical(written):
                return self.reader(written, written, path)
            case tree.Union(), _:
                return self._union(written, declared, path)
            case _, tree.Union():
                branch = matching.branch_for(written, declared)
                if branch is not None:
                    return self.reader(written, branch, path)
            case tree.Record(), tree.Record():
                return self._record(written, declared, path)
            case tree.Array(), tree.Array():
                return read_array(self.reader(written.items, declared.items, path + "[]"))
            case tree.Map(), tree.Map():
                return read_map(self.reader(written.values, declared.values, path + "{}"))
            case _ if matching.fits(written, declared):
                return _read_scalar(written, declared)
        return self._problem(Problem(path, type_text(written), type_text(declared)))

    def _problem(self, problem: Problem) -> Read:
        self.problems.append(problem)
        return _never

    def _union(self, written: tree.Union, declared: tree.Node, path: str) -> Read:
        branches: list[tree.Node] = []
        for each in written.branches:
            alone = sum(type(other) is type(each) for other in written.branches) == 1
            found = matching.branch_for(each, declared, alone)
            if found is None:
                return self._problem(Problem(path, type_text(written), type_text(declared)))
            # Any value fits every branch: which one it is, is seen when it is read.
            branches.append(declared if each is tree.ANYTHING and found is not tree.ANYTHING else found)
        readers = [self.reader(each, found, path) for each, found in zip(written.branches, branches, strict=True)]
        return read_union(readers)

    def _record(self, written: tree.Record, declared: tree.Record, path: str) -> Read:
        fields = matching.fields_of(written, declared)
        prefix = f"{path}." if path else ""
        filled = {target.name for _, target in fields if target is not None}
        dropped = tuple(each.name for each, target in fields if target is None)
        steps: list[tuple[str | None, tuple[str, ...], Read]] = []
        for each, target in fields:
            read = self.reader(each.node, target.node if target else each.node, prefix + each.name)
            same = target is None or layout(each.node) == layout(target.node)
            steps.append((target.name if target else None, layout(each.node) if same else (), read))
        defaults: dict[str, Callable[[], Any]] = {}
        for new in declared.fields:
            if new.name not in filled and new.default is tree.NO_DEFAULT:
                self._problem(Problem(prefix + new.name, None, type_text(new.node), dropped))
            elif new.name not in filled:
                defaults[new.name] = self._default(new)
        names = [each.name for each in declared.fields]
        return record_reader(steps, defaults, names, declared.binding.maker(names) if declared.binding else None)

    def _default(self, field: tree.Field) -> Callable[[], Any]:
        """Read anew each time: two values must not share a list."""
        data, read = default_bytes(field), self.reader(field.node, field.node)
        return lambda: read(data, 0)[0]

    def _fitting(self, declared: tree.Node, path: str) -> Read:
        """Any value, if it turns out to be one of the declared type."""
        read_any = self.reader(tree.ANYTHING, tree.ANYTHING)
        writers, read = Writers(plain=True), self.reader(declared, declared)
        write, where = writers(declared), self._variable + ("" if path[:1] in ("", "[", "{") else ".") + path

        def read_fitting(data: bytes, pos: int) -> tuple[Any, int]:
            value, end = read_any(data, pos)
            try:
                fitting = write(value)
            except Exception as error:
                raise MisfitError(explain(writers, declared, value, where)) from error
            return read(fitting, 0)[0], end

        return read_fitting


def _read_scalar(written: tree.Node, declared: tree.Node) -> Read:
    if isinstance(written, tree.Enum) and isinstance(declared, tree.Enum):
        return read_enum(written, declared)
    if isinstance(written, tree.Fixed):
        return read_fixed(written.size, written.logical)
    assert isinstance(written, tree.Leaf)
    assert isinstance(declared, tree.Leaf)
    return read_leaf(written.kind, declared.kind, declared.logical)


def _never(data: bytes, pos: int) -> tuple[Any, int]:
    raise AssertionError("a value is read although its schema cannot be")
