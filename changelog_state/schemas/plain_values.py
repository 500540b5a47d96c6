"""Values of any declaration without it, for tools and for names that are not declared any more."""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from typing import Any

from changelog_state.codec.json_reader import unreadable
from changelog_state.schemas import tree
from changelog_state.schemas.record_code import Read
from changelog_state.schemas.resolution import Resolution
from changelog_state.schemas.value_codec import HEADER_SIZE

__all__ = ["decode_plain"]


def decode_plain(schema_json: str, data: bytes) -> Any:
    """A value under the schema that it was written with: records are dicts, and enums their symbols."""
    try:
        value, end = _reader(schema_json)(data, HEADER_SIZE)
    except (IndexError, struct.error) as error:
        raise unreadable(data, "it is cut short") from error
    except ValueError as error:
        raise unreadable(data, str(error)) from error
    if end != len(data):
        raise unreadable(data, f"it ends at byte {end} of {len(data)}")
    return value


@lru_cache(maxsize=256)
def _reader(schema_json: str) -> Read:
    node = tree.parse(json.loads(schema_json))
    return Resolution().reader(node, node)
