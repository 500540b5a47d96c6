"""A function of (key, value, state) that is called once per row, and has one value as its state."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from changelog_state.errors import FunctionError
from changelog_state.state.codecs import ANY
from changelog_state.state.handle import State
from changelog_state.task.grouping import Row
from changelog_state.task.key_state import rows_of
from changelog_state.task.keyed import KeyedProgram

__all__ = ["STATE", "RowMap", "row_map_program"]

STATE: Final = "state"
"""The name under which a key's value is stored."""
_UNCHANGEABLE: Final = (bool, int, float, str, bytes)


def row_map_program(
    function: Callable[..., Any], initial: Any = None, on_late: Callable[..., Any] | None = None
) -> KeyedProgram:
    return KeyedProgram(RowMap(function, initial), None, None if on_late is None else RowMap(on_late, initial))


@dataclass(frozen=True)
class RowMap:
    """What ``apply`` takes, made of a function of single rows."""

    function: Callable[..., Any]
    initial: Any = None
    """The state of a key that has none; a function is called for it."""

    def __call__(self, key: Any, rows: list[Row], state: State) -> Iterator[Mapping[str, Any]]:
        # Whatever can be changed in place is stored and read again for the next row: so it is what it would be in the
        # next batch, and changing it does not change rows that were put out before.
        as_it_is = _UNCHANGEABLE if state._context.codec_of(STATE) is ANY else ()
        unsaved: Any = None
        current = self._known(state)
        for row in rows:
            output, new = self._called(key, row, current)
            if type(new) in as_it_is:
                current = unsaved = new
            elif new is None:
                unsaved = None
                state.delete(STATE)
                current = self._first(state)
            else:
                unsaved = None
                state.set(STATE, new)
                current = state.get(STATE)
            if output is not None:
                yield from (output,) if isinstance(output, Mapping) else rows_of(output)
        if unsaved is not None:
            state.set(STATE, unsaved)

    def _called(self, key: Any, row: Row, current: Any) -> tuple[Any, Any]:
        answer = self.function(key, row, current)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise FunctionError(
                f"the function returned {answer!r}; return two things, (output, new_state): None, a dict or a list "
                "of dicts, and the state, which None drops"
            )
        return answer

    def _known(self, state: State) -> Any:
        return state.get(STATE) if state.exists(STATE) else self._first(state)

    def _first(self, state: State) -> Any:
        if self.initial is None:
            return state.get(STATE)  # nothing, or the default that was declared
        return self.initial() if callable(self.initial) else copy.deepcopy(self.initial)
