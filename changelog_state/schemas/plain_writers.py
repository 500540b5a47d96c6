"""What is taken for a plain type although it is not exactly that: numpy's scalars, subclasses, ints for floats.

Everything else raises. A bool is no number, and nothing is rounded or parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, Final

import numpy as np

from changelog_state.schemas.binary import LONGS, pack_double, pack_float

__all__ = ["WRITERS", "as_bool", "as_bytes", "as_float", "as_int", "as_str", "write_bool"]


def as_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _wrong(value)
    return int(value)


def as_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _wrong(value)
    return float(value)


def as_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _wrong(value)


def as_bool(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise _wrong(value)


def as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _wrong(value)


def _wrong(value: Any) -> TypeError:
    return TypeError(f"{type(value).__qualname__} is not the declared type")


def write_null(value: Any) -> bytes:
    if value is None:
        return b""
    raise _wrong(value)


def write_bool(value: Any) -> bytes:
    return b"\x01" if as_bool(value) else b"\x00"


def write_int(value: Any) -> bytes:
    number = value if type(value) is int else as_int(value)
    if not -(1 << 31) <= number < 1 << 31:
        raise OverflowError(f"{number} does not fit into 32 bits")
    return LONGS[number]


def write_long(value: Any) -> bytes:
    return LONGS[value if type(value) is int else as_int(value)]


def write_string(value: Any) -> bytes:
    data = (value if type(value) is str else as_str(value)).encode()
    return LONGS[len(data)] + data


def write_bytes(value: Any) -> bytes:
    data = as_bytes(value)
    return LONGS[len(data)] + data


WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "null": write_null,
    "boolean": write_bool,
    "int": write_int,
    "long": write_long,
    "float": lambda value: pack_float(as_float(value)),
    "double": lambda value: pack_double(value if type(value) is float else as_float(value)),
    "string": write_string,
    "bytes": write_bytes,
}
