"""The exception tree is what is drawn, what is exported, and what survives the wire."""

from __future__ import annotations

import inspect
import re

import pytest

import changelog_state
from changelog_state import errors
from changelog_state.agent.messages import StagedWorkLostError, from_flight_error, from_payload, to_flight_error
from changelog_state.changelog.writer import IndeterminateCommitError
from changelog_state.errors import AgentUnavailableError, ChangelogStateError


def drawn() -> dict[str, str | None]:
    """Class → parent, read from the drawing."""
    assert errors.__doc__ is not None
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"^    ((?:[│├└─ ]{4})*)(\w+Error)\b", line)
        if found:
            depth = len(found.group(1)) // 4
            path[depth:] = [found.group(2)]
            parents[found.group(2)] = path[depth - 1] if depth else None
    return parents


def classes() -> dict[str, type[BaseException]]:
    return {name: value for name, value in vars(errors).items() if inspect.isclass(value)}


def test_the_drawing_is_the_tree() -> None:
    tree = drawn()
    assert len(tree) > 20
    assert set(tree) == set(classes())
    for name, parent in tree.items():
        base = classes()[name].__bases__
        assert [cls.__name__ for cls in base] == [parent or "Exception"], name


def test_all_is_everything_sorted() -> None:
    assert errors.__all__ == sorted(classes())


def test_every_error_says_what_it_is() -> None:
    assert all(cls.__doc__ for cls in classes().values())


def test_public_names() -> None:
    assert set(errors.__all__) <= set(changelog_state.__all__)
    assert {*changelog_state.__all__} - {*errors.__all__} == {
        "Aggregate",
        "BatchSummary",
        "GlobalTable",
        "KafkaOutput",
        "Hopping",
        "List",
        "Map",
        "RestoreFigures",
        "RestoreListener",
        "Session",
        "Sliding",
        "State",
        "StateService",
        "Ttl",
        "Tumbling",
        "Value",
        "Window",
        "__version__",
        "aliased",
        "approx_distinct",
        "collect",
        "count",
        "first",
        "last",
        "max",
        "mean",
        "min",
        "stddev",
        "sum",
        "top",
        "variance",
        "union_inputs",
    }
    assert len(changelog_state.__all__) == len(set(changelog_state.__all__))
    for name in changelog_state.__all__:
        assert hasattr(changelog_state, name), name
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", changelog_state.__version__)


@pytest.mark.parametrize("name", [*errors.__all__, "StagedWorkLostError", "IndeterminateCommitError"])
def test_errors_keep_their_class_over_the_wire(name: str) -> None:
    own = {"StagedWorkLostError": StagedWorkLostError, "IndeterminateCommitError": IndeterminateCommitError}
    kind = own.get(name) or getattr(errors, name)
    back = from_flight_error(to_flight_error(kind("what happened")), "address")
    assert type(back) is kind
    assert str(back) == "what happened"


def test_other_errors_over_the_wire() -> None:
    back = from_flight_error(to_flight_error(KeyError("oops")), "address")
    assert type(back) is ChangelogStateError
    assert "agent failed: KeyError('oops')" in str(back)
    assert type(from_payload({"class": "FromTheFutureError", "message": "m"})) is ChangelogStateError
    gone = from_flight_error(OSError("connection refused\nmore"), "unix:/a")
    assert type(gone) is AgentUnavailableError
    assert "unix:/a" in str(gone)
    assert "more" not in str(gone)
