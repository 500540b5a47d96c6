"""What all keys of one task's batch have in common: the time, the declarations, and where more can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from changelog_state.codec.avro import JSON_CODEC, decode_value, fingerprint_of
from changelog_state.codec.expiring import FOR_EVER_MS, encode_expiring, read_expiring
from changelog_state.codec.kinds import SCHEMA
from changelog_state.durations import point_ms
from changelog_state.errors import ConfigurationError, ValueEncodingError
from changelog_state.schemas.plain_values import decode_plain
from changelog_state.state.codecs import ANY, ValueCodec
from changelog_state.state.ttl import Clock, Ttl, visible
from changelog_state.state.variables import Variable

__all__ = ["NOTHING", "NoReads", "StateContext", "StateReads"]


class StateReads(Protocol):
    """The state from before the batch, beyond what was read with the keys."""

    def read(self, record_keys: list[bytes]) -> list[bytes | None]: ...

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The first records of [start, end), at most ``limit``."""


class NoReads:
    """There is nothing beyond."""

    def read(self, record_keys: list[bytes]) -> list[bytes | None]:
        return [None] * len(record_keys)

    def scan(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return []


NOTHING = NoReads()


class StateContext:
    def __init__(
        self,
        now_ms: int,
        watermark_ms: int | None = None,
        *,
        variables: Mapping[str, Variable] | None = None,
        ttl: Ttl | None = None,
        timer_clock: Clock | None = None,
        event_column: str | None = None,
        generations: Mapping[str, Mapping[bytes, str]] | None = None,
        reads: StateReads = NOTHING,
    ) -> None:
        """``generations``: by variable, the schemas that it was ever declared with, by fingerprint.
        ``timer_clock``: that of timers for which nothing else is said; None: nobody handles timers."""
        self.now_ms = now_ms
        self.watermark_ms = watermark_ms
        self.variables = variables or {}
        self.ttl = ttl
        self.timer_clock = timer_clock
        self.reads = reads
        self._event_column = event_column
        self._generations = generations or {}
        self._times: Sequence[Any] = ()
        """Of the rows, when they happened."""
        self._latest_ms: int | None = None
        self.schemas: dict[bytes, str] = {}
        """Those with which values were written, by fingerprint."""
        self._known_schemas: dict[bytes, str] = {}
        self.is_plain = not self.variables and ttl is None
        """Nothing is declared: values are what they are."""

    @property
    def has_event_time(self) -> bool:
        return self._event_column is not None

    def take_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Those of the key that is processed from now on."""
        self._latest_ms = None
        if self._event_column is not None:  # now, as functions may change their rows
            self._times = [row.get(self._event_column) for row in rows]

    def lifetime_of(self, name: str) -> Ttl | None:
        variable = self.variables.get(name)
        return self.ttl if variable is None or variable.lifetime is None else variable.lifetime

    def codec_of(self, name: str) -> ValueCodec:
        variable = self.variables.get(name)
        return ANY if variable is None else variable.codec

    # -- writing -----------------------------------------------------------------------------------------

    def encode(self, codec: ValueCodec, value: Any, ttl: Ttl | None) -> bytes:
        data = codec.encode(value)
        if codec.fingerprint is not None and codec.schema_json is not None:
            self.schemas[codec.fingerprint] = codec.schema_json
        return data if ttl is None else self.expiring(data, ttl)

    def expiring(self, data: bytes, ttl: Ttl) -> bytes:
        """An encoded value, to live from now on."""
        lives_ms = ttl.milliseconds if ttl.on_read else None
        return encode_expiring(data, self.expires_ms(ttl), by_event_time=ttl.by_event_time, lives_ms=lives_ms)

    def expires_ms(self, ttl: Ttl) -> int:
        """Until when what is written now lives."""
        return self._begins_ms(ttl.by_event_time) + ttl.milliseconds

    def outliving(self, header: bytes, ttl: Ttl | None, before: bytes | None) -> bytes:
        """A collection's header, to outlive all entries, those from before it was declared like this included.

        A millisecond longer: what is over is removed in order of time, and a header without entries harms nobody.
        Entries that are there may live by another clock, or for ever: then so does the header.
        """
        other = None if before is None else read_expiring(before)
        if before is None:
            if ttl is None:
                return header
            expires_ms, by_event_time = self.expires_ms(ttl) + 1, ttl.by_event_time
        elif ttl is None or other is None or other.by_event_time != ttl.by_event_time:
            expires_ms, by_event_time = FOR_EVER_MS, other is not None and other.by_event_time
        else:
            expires_ms, by_event_time = max(self.expires_ms(ttl) + 1, other.expires_ms), ttl.by_event_time
        return encode_expiring(header, expires_ms, by_event_time=by_event_time)

    def _begins_ms(self, by_event_time: bool) -> int:
        return self._event_time() if by_event_time else self.now_ms

    def _event_time(self) -> int:
        """The latest of the key's rows, and not before the watermark: what late rows write is not over at once."""
        if self._latest_ms is None:
            known = [] if self.watermark_ms is None else [self.watermark_ms]
            if self._times:
                known.append(max(point_ms(time, "event time") for time in self._times))
            if not known:
                raise ConfigurationError(
                    "a ttl by event time needs to know the rows' event time; give event_time= with the column that "
                    "has it"
                )
            self._latest_ms = max(known)
        return self._latest_ms

    # -- reading -----------------------------------------------------------------------------------------

    def visible(self, data: bytes) -> bytes | None:
        return visible(data, self.now_ms, self.watermark_ms)

    def refreshed(self, data: bytes) -> bytes | None:
        """A value that was read, with its time begun anew; None if reading it changes nothing."""
        found = read_expiring(data)
        if found is None or found.lives_ms is None:
            return None
        # A timer reads by the watermark, which may be long before the rows that wrote the value.
        expires_ms = max(found.expires_ms, self._begins_ms(found.by_event_time) + found.lives_ms)
        return encode_expiring(found.value, expires_ms, by_event_time=found.by_event_time, lives_ms=found.lives_ms)

    def decode(self, codec: ValueCodec, data: bytes, name: str) -> Any:
        """An encoded value without its time. ``name``: the variable that it is of."""
        if codec is not ANY:
            return codec.decode(data, lambda fingerprint: self._schema_of(name, fingerprint))
        try:
            return decode_value(data)
        except ValueEncodingError:
            # Written under a schema that was declared once; it can be read without the declaration.
            fingerprint = fingerprint_of(data)
            if fingerprint == JSON_CODEC.fingerprint:
                raise
            return decode_plain(self._schema_of(name, fingerprint), data)

    def _schema_of(self, name: str, fingerprint: bytes) -> str:
        """That of the variable first: Avro's fingerprints leave logical types out, and the store has one schema for
        each, which may be another variable's."""
        return self._generations.get(name, {}).get(fingerprint) or self.schema_of(fingerprint)

    def schema_of(self, fingerprint: bytes) -> str:
        known = self._known_schemas.get(fingerprint)
        if known is None:
            [found] = self.reads.read([SCHEMA + fingerprint])
            if found is None:
                raise ValueEncodingError(
                    f"a value was written with schema {fingerprint.hex()}, which is not in the store; verify the "
                    "store, and rebuild it if it is damaged"
                )
            known = self._known_schemas[fingerprint] = found.decode()
        return known
