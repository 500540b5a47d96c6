"""One key's state around the user's function: what is read along with it, what it changed, what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from changelog_state.codec.entries import name_suffix
from changelog_state.codec.kinds import DATA, TIMER
from changelog_state.codec.timers import encode_timer
from changelog_state.errors import ChangelogStateError, FunctionError
from changelog_state.state.collections import Previous
from changelog_state.state.handle import State
from changelog_state.state.timers import KeyTimers
from changelog_state.state.variables import List, Map, Variable
from changelog_state.task.partition_task import PartitionTask

__all__ = ["Prefetched", "failed", "prefetch", "prefetched_variables", "rows_of", "stage_state", "stage_timers"]

Prefetched: TypeAlias = tuple[str, list[tuple[bytes, bytes]], bool]
"""Name, entries, and whether these are all."""


def prefetched_variables(variables: Mapping[str, Variable]) -> list[List | Map]:
    return [each for each in variables.values() if isinstance(each, (List, Map)) and each.prefetch > 0]


def prefetch(
    task: PartitionTask,
    variables: Sequence[List | Map],
    encoded: Sequence[bytes],
    stored_of_all: Sequence[Mapping[str, bytes]],
) -> dict[int, list[Prefetched]]:
    """By the number of the key, the first entries of its declared lists and maps."""
    found: dict[int, list[Prefetched]] = {}
    for variable in variables:
        name, suffix = variable.name, name_suffix(variable.name) + b"\0"
        having = [number for number, stored in enumerate(stored_of_all) if name in stored]
        if not having:
            continue
        prefixes = [DATA + encoded[number] + suffix for number in having]
        ranges = [(prefix, prefix[:-1] + b"\1") for prefix in prefixes]
        pages = task.session.scan_many(ranges, variable.prefetch)
        for number, prefix, page in zip(having, prefixes, pages, strict=True):
            entries = [(record_key[len(prefix) :], value) for record_key, value in page]
            found.setdefault(number, []).append((name, entries, len(page) < variable.prefetch))
    return found


def stage_state(
    task: PartitionTask,
    encoded_key: bytes,
    state: State,
    expired: Iterable[tuple[bytes, bytes]] = (),
    others: Mapping[bytes, tuple[bytes | None, Previous]] | None = None,
    rewritten: Iterable[tuple[bytes, bytes, bytes]] = (),
) -> None:
    """Values, entries of lists and maps, and what has expired, in the order of their record keys.

    ``others``: records beside the user's, by what their keys end with. ``rewritten``: values of earlier generations:
    what their record keys end with, new and stored value.
    """
    changes = dict(others or {})
    for name, value, previous in state.changed():
        suffix = task.names.setdefault(name, name_suffix(name))
        changes[suffix] = value, previous
    for suffix, value, before in state.changed_entries():
        changes[suffix] = value, before
    for suffix, stored in expired:
        if suffix not in changes:
            task.counts.expired += 1
            changes[suffix] = None, stored
    for suffix, new, stored in rewritten:
        if suffix not in changes:
            task.counts.rewritten += 1
            changes[suffix] = new, stored
    for suffix, (value, before) in sorted(changes.items(), key=lambda change: change[0]):
        task.stage.add(DATA + encoded_key + suffix, value, before)


def stage_timers(task: PartitionTask, encoded_key: bytes, timers: KeyTimers) -> None:
    for name, change in timers.changes.items():
        record_key = TIMER + encoded_key + name_suffix(name)
        task.stage.add_later(record_key, None if change is None else encode_timer(change))


def rows_of(result: Any) -> Iterator[Any]:
    """What a function has returned, if that is rows. What is wrong within a generator shows later, and is its own."""
    try:
        return iter(result)
    except TypeError:
        raise FunctionError(f"the function returned {result!r:.200}, which is not rows; yield dicts") from None


def failed(task: PartitionTask, key: Any, error: Exception) -> ChangelogStateError:
    """What is raised when the function of a key has raised this."""
    where = f"for key {key!r} in batch {task.spec.batch}"
    if isinstance(error, ChangelogStateError):
        return type(error)(f"{error} ({where})")
    return FunctionError(
        f"the function raised {type(error).__name__} {where}: {error}; nothing of this batch was committed"
    )
