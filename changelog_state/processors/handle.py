"""The handle that a processor's ``init`` gets: the same methods as Spark's, on this library's state.

One handle and one set of state objects serve all keys of a task. Whose state they speak of is set before each call.
"""

# ruff: noqa: N802, N803 (Spark's own names)
from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import StructType

from changelog_state.codec.entries import name_suffix
from changelog_state.codec.timers import TimerTime
from changelog_state.errors import ConfigurationError, FunctionError
from changelog_state.processors.ddl import parse_schema
from changelog_state.processors.entry_keys import EntryKeys, key_types
from changelog_state.processors.pandas_rows import list_view, row_view
from changelog_state.processors.row_codec import RowCodec, as_strings
from changelog_state.processors.states import ProcessorListState, ProcessorMapState, ProcessorValueState
from changelog_state.processors.variables import RowList, RowMap, RowValue
from changelog_state.state.handle import State
from changelog_state.state.variables import Variable

__all__ = ["NO_EVENT_TIME", "ProcessorHandle", "TimeMode", "is_timer_name", "time_mode_of"]

NO_EVENT_TIME: Final = (
    "event time needs a column: give event_time= and watermark_delay=, or withWatermark() the stream"
)
TimeMode = Literal["none", "processingtime", "eventtime"]
_TIME_MODES: dict[str, TimeMode] = {
    "none": "none",
    "processingtime": "processingtime",
    "eventtime": "eventtime",
}


def time_mode_of(given: Any) -> TimeMode:
    """As Spark takes it: in any case of letters."""
    found = _TIME_MODES.get(given.lower()) if isinstance(given, str) else None
    if found is None:
        raise ConfigurationError(f"time_mode is {given!r}; use 'None', 'ProcessingTime' or 'EventTime'")
    return found


def is_timer_name(name: str) -> bool:
    """Timers that processors set are named after their time, in milliseconds."""
    return name.removeprefix("-").isdigit()


class ProcessorHandle(StatefulProcessorHandle):  # type: ignore[misc]
    def __init__(
        self, time_mode: TimeMode, timezone: str = "UTC", schemas: Mapping[str, StructType] | None = None
    ) -> None:
        """``schemas``: state schemas in words that only Spark's own parser understands, and what it made of them."""
        self.time_mode = time_mode
        self.variables: dict[str, Variable] = {}
        self.deleted: set[str] = set()
        """States that ``deleteIfExists`` was called for."""
        self._timezone = timezone
        self._schemas = schemas or {}
        self._in_init = True
        self._state: State | None = None

    # -- for those who run the processor -----------------------------------------------------------------

    def initialized(self) -> None:
        self._in_init = False

    def speak_of(self, state: State | None) -> None:
        """From now on, the key is another one."""
        self._state = state

    @property
    def state(self) -> State:
        if self._state is None:
            raise FunctionError(
                "the processor uses its state or timers while no key is handled, as in init() or close(); use them "
                "in handleInputRows(), handleExpiredTimer() and handleInitialState()"
            )
        return self._state

    # -- for processors ----------------------------------------------------------------------------------

    def getValueState(
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ProcessorValueState:
        codec = self._codec(stateName, schema)
        self._declare(RowValue(stateName, codec, ttl=self._ttl(stateName, ttlDurationMs)))
        return ProcessorValueState(self, stateName, codec)

    def getListState(
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ProcessorListState:
        codec = self._codec(stateName, schema)
        self._declare(RowList(stateName, codec, ttl=self._ttl(stateName, ttlDurationMs)))
        view = list_view(codec.schema, self._timezone)
        return ProcessorListState(self, stateName, view, codec.schema.names)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ProcessorMapState:
        codec = self._codec(stateName, valueSchema)
        keys = EntryKeys(self.parsed(userKeySchema), f"the key of state {stateName!r}")
        ttl = self._ttl(stateName, ttlDurationMs)
        self._declare(RowMap(stateName, None, codec, ttl=ttl, key_types=key_types(keys.schema)))
        return ProcessorMapState(
            self,
            stateName,
            keys,
            codec,
            row_view(keys.schema, self._timezone),
            row_view(codec.schema, self._timezone),
        )

    def deleteIfExists(self, stateName: str) -> None:
        self._check_in_init("deleteIfExists()")
        self.variables.pop(stateName, None)
        self.deleted.add(stateName)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._change_timer(expiryTimestampMs, exists=True)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._change_timer(expiryTimestampMs, exists=False)

    def listTimers(self) -> Iterator[int]:
        if self.time_mode == "none":
            return iter(())
        return iter(sorted(int(name) for name in self.state.timers() if is_timer_name(name)))

    # -- inside ------------------------------------------------------------------------------------------

    def _change_timer(self, at_ms: Any, *, exists: bool) -> None:
        """Spark's timers have no names: a key has one for each time."""
        if self.time_mode == "none":
            raise ConfigurationError(
                "the processor uses timers, but time_mode is 'None'; give time_mode='ProcessingTime' or 'EventTime'"
            )
        at_ms = operator.index(at_ms)
        time = TimerTime(at_ms, self.time_mode == "eventtime") if exists else None
        self.state._key_timers().change(str(at_ms), time)

    def _check_in_init(self, what: str) -> None:
        if not self._in_init:
            raise FunctionError(f"the processor calls {what} after init(); declare all state in init()")

    def _declare(self, variable: Variable) -> None:
        self._check_in_init("getValueState(), getListState() or getMapState()")
        if variable.name in self.variables:
            raise ConfigurationError(f"state {variable.name!r} is declared twice; give each its own name")
        name_suffix(variable.name)
        self.variables[variable.name] = variable

    def _codec(self, name: str, schema: StructType | str) -> RowCodec:
        return RowCodec(self.parsed(schema), name)

    def parsed(self, schema: StructType | str) -> StructType:
        """A state's schema, also if it is given in words."""
        if isinstance(schema, StructType):
            return as_strings(schema)
        return self._schemas.get(schema) or parse_schema(schema)

    def _ttl(self, name: str, milliseconds: int | None) -> timedelta | None:
        if milliseconds is None:
            return None
        if self.time_mode != "processingtime":
            raise ConfigurationError(
                f"state {name!r} has a ttl, which Spark knows for time_mode='ProcessingTime' only; use this mode"
            )
        return timedelta(milliseconds=operator.index(milliseconds))
