"""Values in JSON for people: what JSON has no word for is text."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

__all__ = ["plain"]


def plain(value: Any) -> str:
    """For ``json.dumps(default=)``."""
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID, timedelta)):
        return str(value)
    raise TypeError(f"not JSON: {type(value).__name__}")
