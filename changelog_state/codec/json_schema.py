"""The built-in schema, for values without a declared one.

``json_writer`` and ``json_reader`` handle it by hand, because fastavro needs three times as long: each nested
value is a record with a union inside. Any Avro reader can read it, and tests compare with fastavro both ways.

A body is the number of the union branch (zigzag: twice its index), then what Avro prescribes for that type.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["JSON_SCHEMA", "MAX_DEPTH", "deeper"]

JSON_SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Json",
    "namespace": "changelog_state",
    "fields": [
        {
            "name": "value",
            "type": [
                "null",
                "boolean",
                "long",
                "double",
                "string",
                "bytes",
                {"type": "array", "items": "Json"},
                {"type": "map", "values": "Json"},
                {"type": "record", "name": "BigInt", "fields": [{"name": "value", "type": "bytes"}]},
            ],
        }
    ],
}

# What one process can write, every other one must be able to read, however deep its own stack is.
MAX_DEPTH: Final = 100


def deeper(depth: int) -> int:
    if depth == MAX_DEPTH:
        raise ValueError("nested too deeply")
    return depth + 1
