"""Lists of bounded length per key, as whole columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.functions.order import order_keys

__all__ = ["joined_lists", "like_lists", "shortened_lists"]


def joined_lists(old: pa.Array, new: pa.Array, keep: int, *, sort: str | None, newest: bool) -> pa.Array:
    """Old and new items of each row as one list of at most ``keep`` items.

    ``sort``: "ascending" or "descending"; None: new items behind the old ones. ``newest``: kept are the last items
    of the list, else the first ones.
    """
    count = len(old)
    items = pa.concat_arrays([old.flatten(), new.flatten()])
    rows = np.concatenate([np.repeat(np.arange(count), _lengths(lists)) for lists in (old, new)])
    order = _order(rows, items, sort)
    rows = rows[order]
    lengths = np.bincount(rows, minlength=count)
    kept = _kept(rows, lengths, keep, newest=newest)
    return _lists(items.take(pa.array(order[kept])), np.minimum(lengths, keep))


def shortened_lists(lists: pa.Array, keep: int, *, newest: bool) -> pa.Array:
    """The same for lists to which nothing is added: they may have been longer when they were stored."""
    lengths = _lengths(lists)
    if not (lengths > keep).any():
        return lists
    kept = _kept(np.repeat(np.arange(len(lists)), lengths), lengths, keep, newest=newest)
    return _lists(lists.flatten().filter(pa.array(kept)), np.minimum(lengths, keep))


def like_lists(lists: pa.Array, items: pa.Array) -> pa.Array:
    """Other items in place of those of the lists."""
    return _lists(items, _lengths(lists))


def _kept(
    rows: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], keep: int, *, newest: bool
) -> npt.NDArray[np.bool_]:
    """Of all items, list by list, with the row of each: those that are kept."""
    ends = np.cumsum(lengths)
    kept: npt.NDArray[np.bool_]
    if newest:
        kept = np.arange(len(rows)) >= (ends - keep)[rows]
    else:
        kept = np.arange(len(rows)) < (ends - lengths + keep)[rows]
    return kept


def _lists(items: pa.Array, lengths: npt.NDArray[np.int64]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _order(rows: npt.NDArray[np.int64], items: pa.Array, sort: str | None) -> npt.NDArray[np.int64]:
    if sort is None:
        return np.argsort(rows, kind="stable")
    columns = {"row": pa.array(rows)}
    columns |= {f"key{number}": key for number, key in enumerate(order_keys(items))}
    sort_keys = [(name, "ascending" if name == "row" else sort) for name in columns]
    found: npt.NDArray[np.int64] = pc.sort_indices(pa.table(columns), sort_keys=sort_keys).to_numpy()
    return found


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.list_value_length(lists)
    found: npt.NDArray[np.int64] = lengths.fill_null(0).to_numpy()
    return found
