"""Encoded keys of whole columns: what ``KeyCodec.encode_columns`` gives, as a binary array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.avro.pieces import join_pieces, wide_piece
from changelog_state.codec.key_parts import PARTS
from changelog_state.codec.keys import KeyCodec

__all__ = ["encode_key_columns"]

_END = pa.scalar(b"\x00", pa.binary())
_PLAIN = (("string",), ("binary",))


def encode_key_columns(codec: KeyCodec, columns: Sequence[pa.Array]) -> pa.Array:
    """No key column may have nulls."""
    pieces: list[pa.Array | pa.Scalar] = []
    for name, column in zip(codec.types, columns, strict=True):
        if codec.types not in _PLAIN:
            pieces.append(pa.scalar(PARTS[name].type_byte, pa.binary()))
        if name in ("string", "binary"):
            pieces += [_escaped(column.cast(pa.binary())), _END]
        elif name == "boolean":
            pieces.append(wide_piece(column.cast(pa.uint8()).to_numpy(), 1, None))
        else:
            numbers = column.cast(pa.int64()).to_numpy().view(np.uint64)
            pieces.append(wide_piece((numbers ^ np.uint64(1 << 63)).astype(">u8"), 8, None))
    return join_pieces(pieces)


def _escaped(column: pa.Array) -> pa.Array:
    """Hardly any key has such bytes: one look at all of them together."""
    content = column.buffers()[2]
    if content is None or not (np.frombuffer(content, np.uint8) <= 1).any():
        return column
    return pc.replace_substring(pc.replace_substring(column, b"\x01", b"\x01\x02"), b"\x00", b"\x01\x01")
