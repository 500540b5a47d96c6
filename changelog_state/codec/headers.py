"""A Kafka record's headers as one value, on their way from a task to the owner: JSON, the values in base64."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable

__all__ = ["Headers", "pack_headers", "unpack_headers"]

Headers = list[tuple[str, bytes | None]]


def pack_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    pairs = [(name, None if value is None else b64encode(value).decode()) for name, value in headers]
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":")).encode()


def unpack_headers(packed: bytes) -> Headers:
    return [(name, None if value is None else b64decode(value)) for name, value in json.loads(packed)]
