"""What all keys of one task's batch have in common: the time, the declarations, and where more can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from changelog_state.codec.avro import JSON_CODEC, decode_value, fingerprint_of
from changelog_state.codec.expiring import encode_expiring, read_expiring
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
        self.rows: Sequence[Mapping[str, Any]] = ()
        """Of the key that is processed."""
        self.schemas: dict[bytes, str] = {}
        """Those with which values were written, by fingerprint."""
        self._known_schemas: dict[bytes, str] = {}
        self.is_plain = not self.variables and ttl is None
        """Nothing is declared: values are what they are."""

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

    def expiring(self, data: bytes, ttl: Ttl, *, not_before: bytes | None = None) -> bytes:
        """An encoded value, to live from now on, and no shorter than another one by the same clock."""
        begins = self._event_time() if ttl.by_event_time else self.now_ms
        expires_ms = begins + ttl.milliseconds
        other = None if not_before is None else read_expiring(not_before)
        if other is not None and other.by_event_time == ttl.by_event_time:
            expires_ms = max(expires_ms, other.expires_ms)
        return encode_expiring(data, expires_ms, by_event_time=ttl.by_event_time)

    def _event_time(self) -> int:
        """The latest of the key's rows; without any, the watermark."""
        if self.rows and self._event_column is not None:
            return max(point_ms(row[self._event_column], "event time") for row in self.rows)
        known = self.watermark_ms
        if known is None:
            raise ConfigurationError(
                "a ttl by event time needs to know the rows' event time; give event_time= with the column that has it"
            )
        return known

    # -- reading -----------------------------------------------------------------------------------------

    def visible(self, data: bytes) -> bytes | None:
        return visible(data, self.now_ms, self.watermark_ms)

    def lives_longer(self, data: bytes, ttl: Ttl) -> bytes:
        """A value that was read, with its time begun anew."""
        expiring = read_expiring(data)
        return self.expiring(data if expiring is None else expiring.value, ttl)

    def decode(self, codec: ValueCodec, data: bytes) -> Any:
        """An encoded value without its time."""
        if codec is not ANY:
            own = self._generations.get(getattr(codec, "name", ""), {})
            return codec.decode(data, lambda fingerprint: own.get(fingerprint) or self.schema_of(fingerprint))
        try:
            return decode_value(data)
        except ValueEncodingError:
            # Written under a schema that was declared once; it can be read without the declaration.
            if fingerprint_of(data) == JSON_CODEC.fingerprint:
                raise
            return decode_plain(self.schema_of(fingerprint_of(data)), data)

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
