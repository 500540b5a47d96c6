"""Avro's logical types: Python's dates, times, decimals and UUIDs as the plain values that are written.

By hand rather than by fastavro, which takes a datetime without a zone for local time: what is written must not
depend on the machine. Here it is UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final
from uuid import UUID

__all__ = ["BIGINT", "Logical", "logical_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EXACT: Final = Context(prec=1_000_000)


@dataclass(frozen=True)
class Logical:
    """Equal ones stand for the same values in the same bytes."""

    name: str
    cls: type
    to_raw: Callable[[Any], Any]
    from_raw: Callable[[Any], Any]
    precision: int = 0
    scale: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Logical) and (self.name, self.scale) == (other.name, other.scale)

    def __hash__(self) -> int:
        return hash((self.name, self.scale))


def _need(value: Any, cls: type) -> Any:
    # A datetime is a date too, but writing it as one would lose its time.
    if not isinstance(value, cls) or (cls is date and isinstance(value, datetime)):
        raise TypeError(f"{type(value).__qualname__} is not {cls.__qualname__}")
    return value


def _instant(unit: int) -> tuple[Callable[[Any], int], Callable[[int], datetime]]:
    def to_raw(value: Any) -> int:
        moment: datetime = _need(value, datetime)
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MICROSECOND // unit

    return to_raw, lambda raw: _EPOCH + timedelta(microseconds=raw * unit)


def _local(unit: int) -> tuple[Callable[[Any], int], Callable[[int], datetime]]:
    def to_raw(value: Any) -> int:
        moment: datetime = _need(value, datetime)
        if moment.tzinfo is not None:
            raise TypeError("a local timestamp has no time zone")
        return (moment - _LOCAL_EPOCH) // _MICROSECOND // unit

    return to_raw, lambda raw: _LOCAL_EPOCH + timedelta(microseconds=raw * unit)


def _time(unit: int) -> tuple[Callable[[Any], int], Callable[[int], time]]:
    def to_raw(value: Any) -> int:
        clock: time = _need(value, time)
        if clock.tzinfo is not None:
            raise TypeError("a time of day has no time zone")
        seconds = clock.hour * 3600 + clock.minute * 60 + clock.second
        return (seconds * 1_000_000 + clock.microsecond) // unit

    def from_raw(raw: int) -> time:
        days, rest = divmod(raw * unit, 86_400_000_000)
        if days:
            raise ValueError(f"{raw} is not a time of day")
        return (_LOCAL_EPOCH + timedelta(microseconds=rest)).time()

    return to_raw, from_raw


def _decimal(
    precision: int, scale: int, size: int | None
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Decimal]]:
    unit = Decimal(1).scaleb(-scale)
    # Nothing is rounded: that is an error, as digits without a place are.
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def to_raw(value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise TypeError(f"{type(value).__qualname__} is not Decimal")
        try:
            unscaled = int(context.quantize(Decimal(value), unit).scaleb(scale, _EXACT))
        except ArithmeticError as error:
            raise ValueError(f"it does not fit into {precision} digits, {scale} of them decimals") from error
        return unscaled.to_bytes(size or (abs(unscaled).bit_length() + 8) // 8, "big", signed=True)

    def from_raw(raw: bytes) -> Decimal:
        return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale, _EXACT)

    return to_raw, from_raw


_KNOWN: Final[dict[tuple[str, str], Logical]] = {
    ("long", "timestamp-micros"): Logical("timestamp-micros", datetime, *_instant(1)),
    ("long", "timestamp-millis"): Logical("timestamp-millis", datetime, *_instant(1000)),
    ("long", "local-timestamp-micros"): Logical("local-timestamp-micros", datetime, *_local(1)),
    ("long", "local-timestamp-millis"): Logical("local-timestamp-millis", datetime, *_local(1000)),
    ("long", "time-micros"): Logical("time-micros", time, *_time(1)),
    ("int", "time-millis"): Logical("time-millis", time, *_time(1000)),
    ("int", "date"): Logical(
        "date",
        date,
        lambda value: _need(value, date).toordinal() - _EPOCH_DAY,
        lambda raw: date.fromordinal(raw + _EPOCH_DAY),
    ),
    ("string", "uuid"): Logical("uuid", UUID, lambda value: str(_need(value, UUID)), UUID),
}

BIGINT: Final = Logical("integer", int, lambda value: value, lambda raw: int.from_bytes(raw, "big", signed=True))
"""Integers beyond 64 bits in values of the built-in schema, which writes them itself."""


def logical_of(schema: dict[str, Any]) -> Logical | None:
    """The logical type of a schema; as Avro prescribes, one that is not known is ignored."""
    kind, name = schema["type"], schema.get("logicalType")
    if name == "decimal" and kind in ("bytes", "fixed") and isinstance(schema.get("precision"), int):
        precision, scale = schema["precision"], schema.get("scale", 0)
        return Logical(name, Decimal, *_decimal(precision, scale, schema.get("size")), precision, scale)
    return _KNOWN.get((kind, str(name)))
