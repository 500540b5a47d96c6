"""Lengths of time and points in time, as users write them, in milliseconds."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from changelog_state.errors import ConfigurationError, InvalidInputError

__all__ = ["Duration", "PointInTime", "duration_ms", "duration_us", "point_ms", "to_datetime"]

Duration: TypeAlias = float | timedelta | str
"""Seconds, a timedelta, or words such as "10 minutes" or "1 hour 30 minutes"."""
PointInTime: TypeAlias = float | datetime
"""A datetime (a naive one is UTC), or seconds since 1970."""

_UNITS_MS = {
    "millisecond": 1,
    "ms": 1,
    "second": 1_000,
    "s": 1_000,
    "minute": 60_000,
    "min": 60_000,
    "hour": 3_600_000,
    "h": 3_600_000,
    "day": 86_400_000,
    "d": 86_400_000,
    "week": 604_800_000,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_MS = (1 << 62) - 1
_LONGEST_US = 30_000_000 * 86_400_000_000
"""So that a time with it added is a long yet."""
_LATEST_SECONDS = 1e11
"""In the year 5138. A larger number has most likely been meant as milliseconds."""


def duration_ms(value: Duration, what: str, *, at_least_ms: int = 1) -> int:
    """The nearest one. ``what`` it is, for the error: "ttl"."""
    milliseconds = _milliseconds(value, what)
    if not math.isfinite(milliseconds) or not at_least_ms <= round(milliseconds) <= _LONGEST_MS:
        raise ConfigurationError(
            f"{what} is {value!r}; give seconds, a timedelta or words like '10 minutes', of at least {at_least_ms} ms"
        )
    return round(milliseconds)


def duration_us(value: Duration, what: str) -> int:
    """In microseconds: for what is compared with times as rows have them."""
    milliseconds = _milliseconds(value, what)
    if not 0 <= milliseconds <= _LONGEST_US / 1000:
        raise ConfigurationError(
            f"{what} is {value!r}; give seconds, a timedelta or words like '10 minutes', up to 30,000,000 days"
        )
    return round(milliseconds * 1000)


def _milliseconds(value: Duration, what: str) -> float:
    if isinstance(value, timedelta):
        return value / _MILLISECOND
    if isinstance(value, str):
        return _of_words(value, what)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigurationError(f"{what} is {value!r}; give seconds, a timedelta, or words like '10 minutes'")
    return value * 1000


def _of_words(text: str, what: str) -> float:
    parts = _PART.findall(text.lower())
    rest = _PART.sub("", text.lower()).strip()
    units = [unit if unit in _UNITS_MS else unit.removesuffix("s") for _, unit in parts]
    if not parts or rest or any(unit not in _UNITS_MS for unit in units):
        raise ConfigurationError(
            f"{what} is {text!r}, which is not a length of time; write it like '10 minutes' or '1 hour 30 minutes'"
        )
    return sum(float(number) * _UNITS_MS[unit] for (number, _), unit in zip(parts, units, strict=True))


def point_ms(value: PointInTime, what: str) -> int:
    """Milliseconds since 1970, rounded down."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // _MILLISECOND
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidInputError(f"{what} is {value!r}; give a datetime, or seconds since 1970")
    if abs(value) >= _LATEST_SECONDS:
        raise InvalidInputError(f"{what} is {value!r} seconds since 1970; is it in milliseconds? divide it by 1000")
    return math.floor(value * 1000)


def to_datetime(milliseconds: int) -> datetime:
    """In UTC. What lies beyond a datetime's reach becomes its first or last moment."""
    try:
        return _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return (datetime.max if milliseconds > 0 else datetime.min).replace(tzinfo=UTC)
