"""HyperLogLog sketches of many keys at once.

A hash is a register (its highest ``p`` bits) and a rank (trailing zeros of the rest, plus one); a sketch keeps the
largest rank per register. While it has few registers it lists them: 3 bytes each, ``register << 6 | rank``,
big-endian, ascending. From the length on at which one byte for every register takes no more, it has these instead.
No list is that long: the number of registers is a power of two, and no multiple of 3.

The estimate is Ertl's "improved raw estimator" (New cardinality estimation algorithms for HyperLogLog sketches,
2017): over the whole range without tables, with a standard error of 1.04 / sqrt(number of registers).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.avro.pieces import join_pieces, offsets_of, ragged_piece

__all__ = ["ENTRY_RANK_BITS", "LARGEST_P", "SMALLEST_P", "entries_of", "estimates", "merged_sketches"]

SMALLEST_P, LARGEST_P = 4, 18
ENTRY_RANK_BITS = 6
_ENTRY_BYTES = 3
_ENTRY_BITS = 8 * _ENTRY_BYTES
_RANK_MASK = (1 << ENTRY_RANK_BITS) - 1
_HASH_BITS = 64
_ROWS_AT_ONCE = 4_096

_Ints = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]


def merged_sketches(sketches: pa.Array, entries: pa.Array, p: int) -> pa.Array:
    """Sketches (binary, none is null) together with lists of entries, one list per sketch."""
    registers = 1 << p
    was_table = _is_dense(sketches, registers)
    new_rows = np.repeat(np.arange(len(sketches)), pc.list_value_length(entries).fill_null(0).to_numpy())
    new_entries = entries.flatten().to_numpy().astype(np.int64)
    into_table = was_table[new_rows]
    # 1. What is listed, old and new: the largest entry of each register.
    old = _keys(*_listed(sketches, was_table))
    listed = _largest_per_register(np.concatenate([old, _keys(new_rows, new_entries)[~into_table]]))
    rows = listed >> _ENTRY_BITS
    counts = np.bincount(rows, minlength=len(sketches))
    grown = counts * _ENTRY_BYTES >= registers
    # 2. Tables, the old ones and those of lists that have become too long.
    is_table = was_table | grown
    places = np.cumsum(is_table) - 1
    tables = np.zeros((int(is_table.sum()), registers), dtype=np.uint8)
    tables[places[was_table]] = _tables(sketches, was_table, registers)
    _raise(tables, places[new_rows[into_table]], new_entries[into_table])
    _raise(tables, places[rows[grown[rows]]], listed[grown[rows]])
    # 3. Each sketch is the one or the other.
    lists = ragged_piece(_entry_bytes(listed[~grown[rows]]), np.where(is_table, 0, counts * _ENTRY_BYTES), None)
    return join_pieces([lists, ragged_piece(tables.reshape(-1), np.where(is_table, registers, 0), None)])


def entries_of(sketches: pa.Array, p: int) -> pa.Array:
    """The other way around: for each sketch the list of entries that make it."""
    registers = 1 << p
    was_table = _is_dense(sketches, registers)
    rows, entries = _listed(sketches, was_table)
    tables = _tables(sketches, was_table, registers)
    places, register = np.nonzero(tables)
    rows = np.concatenate([rows, np.flatnonzero(was_table)[places]])
    entries = np.concatenate([entries, register << ENTRY_RANK_BITS | tables[places, register]])
    ends = np.cumsum(np.bincount(rows, minlength=len(sketches)))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(entries[np.argsort(rows, kind="stable")], pa.int32()))


def estimates(sketches: pa.Array, p: int) -> npt.NDArray[np.float64]:
    """How many different hashes each sketch has seen."""
    found = np.zeros(len(sketches), dtype=np.float64)
    for begin in range(0, len(sketches), _ROWS_AT_ONCE):
        part = sketches.slice(begin, _ROWS_AT_ONCE)
        found[begin : begin + len(part)] = _estimate(_rank_counts(part, p), p)
    return found


def _rank_counts(sketches: pa.Array, p: int) -> npt.NDArray[np.float64]:
    """For each sketch and rank, the number of registers with this rank."""
    registers, ranks = 1 << p, _HASH_BITS - p + 2
    dense = _is_dense(sketches, registers)
    rows, entries = _listed(sketches, dense)
    tables = _tables(sketches, dense, registers)
    table_rows = np.repeat(np.flatnonzero(dense), registers)
    cells = np.concatenate([rows * ranks + (entries & _RANK_MASK), table_rows * ranks + tables.reshape(-1)])
    counts = np.bincount(cells, minlength=len(sketches) * ranks).reshape(len(sketches), ranks).astype(np.float64)
    counts[:, 0] += registers - counts.sum(axis=1)
    return counts


def _estimate(counts: npt.NDArray[np.float64], p: int) -> npt.NDArray[np.float64]:
    registers = 1 << p
    z = registers * _tau(1 - counts[:, -1] / registers)
    for rank in range(counts.shape[1] - 2, 0, -1):
        z = 0.5 * (z + counts[:, rank])
    empty = counts[:, 0] == registers
    z += registers * _sigma(np.where(empty, 0.0, counts[:, 0] / registers))
    found: npt.NDArray[np.float64] = np.where(
        empty, 0.0, registers * registers / (2 * math.log(2) * np.maximum(z, 1e-300))
    )
    return found


def _sigma(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    y, z = 1.0, x.copy()
    while True:
        x = x * x
        before, z = z, z + x * y
        y += y
        if (before == z).all():
            return z


def _tau(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    y, z = 1.0, 1 - x
    while True:
        x = np.sqrt(x)
        y *= 0.5
        before, z = z, z - (1 - x) ** 2 * y
        if (before == z).all():
            return z / 3


def _is_dense(sketches: pa.Array, registers: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.diff(offsets_of(sketches)) == registers
    return found


def _listed(sketches: pa.Array, dense: npt.NDArray[np.bool_]) -> tuple[_Ints, _Ints]:
    """All entries of the sketches that are lists, and the rows they belong to."""
    lists = sketches.filter(pa.array(~dense))
    triples = _content(lists).reshape(-1, _ENTRY_BYTES).astype(np.int64)
    rows = np.repeat(np.flatnonzero(~dense), np.diff(offsets_of(lists)) // _ENTRY_BYTES)
    return rows, triples[:, 0] << 16 | triples[:, 1] << 8 | triples[:, 2]


def _tables(sketches: pa.Array, dense: npt.NDArray[np.bool_], registers: int) -> _Bytes:
    return _content(sketches.filter(pa.array(dense))).reshape(-1, registers)


def _content(values: pa.Array) -> _Bytes:
    offsets = offsets_of(values)
    if offsets[-1] == offsets[0]:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(values.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]


def _keys(rows: _Ints, entries: _Ints) -> _Ints:
    return rows << _ENTRY_BITS | entries


def _largest_per_register(keys: _Ints) -> _Ints:
    keys = np.sort(keys)
    register = keys >> ENTRY_RANK_BITS
    is_last = np.ones(len(keys), dtype=np.bool_)
    is_last[:-1] = register[1:] != register[:-1]
    return keys[is_last]


def _raise(tables: _Bytes, places: _Ints, entries: _Ints) -> None:
    """Registers that are below an entry's rank get it."""
    register = (entries & ((1 << _ENTRY_BITS) - 1)) >> ENTRY_RANK_BITS
    np.maximum.at(tables, (places, register), (entries & _RANK_MASK).astype(np.uint8))


def _entry_bytes(entries: _Ints) -> _Bytes:
    return np.stack([entries >> shift for shift in (16, 8, 0)], axis=1).astype(np.uint8).reshape(-1)
