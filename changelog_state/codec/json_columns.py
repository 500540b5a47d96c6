"""Arrow columns as JSON texts: column by column in Arrow's own functions, without work per row.

Much as Spark's ``to_json`` writes them, except that a field without a value is null instead of left out, and that
times are in UTC with all six digits of their fraction.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.errors import ConfigurationError

__all__ = ["json_objects", "json_texts"]

_ESCAPED = r'[\x00-\x1f"\\]'
_NOT_A_NUMBER = pa.array(["NaN", "Infinity", "-Infinity"])


def json_objects(names: list[str], columns: list[pa.Array], rows: int) -> pa.Array:
    """One object per row."""
    parts: list[Any] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        begin = "," if number else "{"
        parts += [f"{begin}{json.dumps(name, ensure_ascii=False)}:", json_texts(column)]
    return _joined(*parts, "}") if parts else pa.array(["{}"] * rows, pa.string())


def json_texts(column: pa.Array) -> pa.Array:
    """One text per value; that of a missing one is ``null``."""
    kind = column.type
    writer = next((write for is_such, write in _WRITERS if is_such(kind)), None)
    if writer is None:
        raise ConfigurationError(f"a column of type {kind} cannot be written as JSON; convert it, e.g. to a string")
    texts = writer(column)
    return pc.fill_null(texts, "null") if texts.null_count else texts


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _strings(column: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(column, _ESCAPED)
    quoted = _joined('"', column, '"')
    if not pc.any(special, min_count=0).as_py():
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in column.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, pc.fill_null(special, False), pa.array(escaped, pa.string()))


def _floats(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    texts = pc.if_else(pc.match_substring_regex(texts, r"^-?\d+$"), _joined(texts, ".0"), texts)
    strange = pc.invert(pc.is_finite(column))
    if not pc.any(strange, min_count=0).as_py():
        return texts
    sign = pc.if_else(pc.is_nan(column), 0, pc.if_else(pc.less(column, 0), 2, 1))
    return pc.if_else(strange, _strings(_NOT_A_NUMBER.take(sign)), texts)


def _bytes(column: pa.Array) -> pa.Array:
    encoded = [None if data is None else b64encode(data).decode() for data in column.to_pylist()]
    return _joined('"', pa.array(encoded, pa.string()), '"')


def _dates(column: pa.Array) -> pa.Array:
    return _joined('"', column.cast(pa.string()), '"')


def _times(column: pa.Array) -> pa.Array:
    # NOTE: without its zone a timestamp is what it is in UTC; with it, Arrow would look for a time zone database.
    texts = column.cast(pa.timestamp("us")).cast(pa.string())
    texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return _joined('"', texts, '"' if column.type.tz is None else 'Z"')


def _lists(column: pa.Array) -> pa.Array:
    return _joined("[", _regrouped(json_texts(column.flatten()), column), "]")


def _maps(column: pa.Array) -> pa.Array:
    column = column.take(pa.array(np.arange(len(column))))  # so that its entries are those of its rows, and no more
    keys = json_texts(column.keys)
    keys = pc.if_else(pc.starts_with(keys, '"'), keys, _strings(keys))  # names are strings, whatever they tell
    return _joined("{", _regrouped(_joined(keys, ":", json_texts(column.items)), column), "}")


def _structs(column: pa.Array) -> pa.Array:
    names = [column.type.field(number).name for number in range(column.type.num_fields)]
    texts = json_objects(names, column.flatten(), len(column))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def _regrouped(texts: pa.Array, column: pa.Array) -> pa.Array:
    """The texts of all entries, joined by the lists that these are in; null where there is no list."""
    if pa.types.is_map(column.type):
        lengths = np.diff(column.offsets.to_numpy())
    else:
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("int32")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")
    return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.string()))


_WRITERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]]] = [
    (pa.types.is_string, _strings),
    (pa.types.is_integer, _plain),
    (pa.types.is_boolean, _plain),
    (pa.types.is_decimal, _plain),
    (pa.types.is_floating, _floats),
    (pa.types.is_timestamp, _times),
    (pa.types.is_date32, _dates),
    (pa.types.is_binary, _bytes),
    (pa.types.is_list, _lists),
    (pa.types.is_map, _maps),
    (pa.types.is_struct, _structs),
    (pa.types.is_null, _plain),
]
