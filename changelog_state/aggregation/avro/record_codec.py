"""Single objects of one record schema, encoded and decoded as whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from changelog_state.aggregation.avro.cursor import Cursor
from changelog_state.aggregation.avro.pieces import join_pieces
from changelog_state.aggregation.avro.types import Record
from changelog_state.codec.avro import SingleObjectCodec

__all__ = ["RecordCodec"]


class RecordCodec:
    """What ``SingleObjectCodec`` does for one value, for many. A record needs at least one field."""

    def __init__(self, record: Record) -> None:
        self.record = record

    @cached_property
    def single(self) -> SingleObjectCodec:
        """The same schema, value by value."""
        return SingleObjectCodec(self.record.schema())

    def encode(self, columns: Sequence[pa.Array]) -> pa.Array:
        """One binary value per row, of one column per field."""
        pieces = [
            piece
            for field, column in zip(self.record.fields, columns, strict=True)
            for piece in field.type.write(column)
        ]
        return join_pieces([pa.scalar(self.single.header, pa.binary()), *pieces])

    def decode(self, values: pa.Array) -> list[pa.Array]:
        """One column per field. All values must have been written with this schema, and none may be null."""
        cursor = Cursor.over(values)
        header = self.single.header
        word, rest = int.from_bytes(header[:8], "little"), int.from_bytes(header[8:], "little")
        wrong = (cursor.words() != np.uint64(word)) | (cursor.words(8) & np.uint64(0xFFFF) != np.uint64(rest))
        cursor.refuse_if(wrong, f"it was not written with schema {self.single.fingerprint.hex()}")
        cursor.advance(len(header))
        columns = self.record.read_fields(cursor)
        cursor.finish()
        return columns

    def wrote(self, values: pa.Array) -> pa.Array:
        """Which values have this schema's header."""
        return pc.starts_with(values, pattern=self.single.header)
