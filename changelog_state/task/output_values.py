"""What pyarrow takes without a word, though it is not what the schema says: 1.5 for an integer, a field that a struct
does not have, a float for a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain
from numbers import Integral, Real
from typing import Any, TypeAlias

import pyarrow as pa

__all__ = ["Check", "check_of"]

Check: TypeAlias = Callable[[Sequence[Any]], None]
"""Raises ValueError if one of these values, all of which pyarrow has taken, is not what it should be."""


def check_of(kind: pa.DataType) -> Check | None:
    """None: pyarrow is strict enough."""
    if pa.types.is_integer(kind):
        return _check_whole
    if pa.types.is_temporal(kind):
        return _check_times
    if pa.types.is_struct(kind):
        return partial(_check_structs, {field.name: check_of(field.type) for field in kind})
    if pa.types.is_map(kind):
        entry = {"key": check_of(kind.key_type), "value": check_of(kind.item_type)}
        return partial(_check_maps, entry) if any(entry.values()) else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        check = check_of(kind.value_type)
        return None if check is None else partial(_check_lists, check)
    return None


def _check_whole(values: Sequence[Any]) -> None:
    if not any(map(_may_be_broken, set(map(type, values)))):
        return
    for value in values:
        if _may_be_broken(type(value)) and value % 1:
            raise ValueError(f"{value!r} is not a whole number")


def _check_times(values: Sequence[Any]) -> None:
    kinds = set(map(type, values))
    wrong = next(filter(_may_be_broken, kinds), None)
    if wrong is not None:
        raise ValueError(f"a {wrong.__name__} is not a time; give a datetime, date or timedelta")
    if any(kind.__name__ == "NaTType" for kind in kinds):  # pandas' word for None, to pyarrow a day of the year 1
        raise ValueError("NaT is not a time; give None")


def _may_be_broken(kind: type) -> bool:
    return issubclass(kind, (Real, Decimal)) and not issubclass(kind, Integral)


def _check_lists(check: Check, values: Iterable[Any]) -> None:
    check(list(chain.from_iterable(value for value in values if value is not None)))


def _check_maps(entry: Mapping[str, Check | None], values: Iterable[Any]) -> None:
    found = (value.items() if isinstance(value, dict) else value for value in values if value is not None)
    _check_structs(entry, chain.from_iterable(found))


def _check_structs(fields: Mapping[str, Check | None], values: Iterable[Any]) -> None:
    rows = [_by_name(fields, value) for value in values if value is not None]
    if not fields.keys() >= set(chain.from_iterable(rows)):
        unknown = list(dict.fromkeys(name for name in chain.from_iterable(rows) if name not in fields))
        raise ValueError(f"fields {unknown} are not in struct {list(fields)}")
    for name, check in fields.items():
        if check is not None:
            check([row.get(name) for row in rows])


def _by_name(fields: Iterable[str], value: Any) -> Mapping[str, Any]:
    """Beside dicts, pyarrow takes tuples, which have all fields in their order, and lists of names with values."""
    if isinstance(value, dict):
        return value
    return dict(zip(fields, value, strict=True) if isinstance(value, tuple) else value)
