"""The generations of a variable's declaration, as JSON for the store's control record (pure).

``{"schemas": [...]}``, the oldest first: each is what ``ValueCodec.declaration`` says, None for any value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from changelog_state.codec.avro import SingleObjectCodec
from changelog_state.schemas.declaration import builtin_kind
from changelog_state.schemas.value_codec import ValueCodec

__all__ = ["describe", "merge_history", "writer_schemas"]


def describe(codec: ValueCodec) -> dict[str, Any]:
    return {"schemas": [codec.declaration]}


def merge_history(recorded: Mapping[str, Any] | None, new: ValueCodec) -> dict[str, Any]:
    """All generations up to the new one, each once, in the order in which they were last declared.

    Nothing is ever taken out: which generation a value is of is known only when somebody reads it.
    """
    earlier = [] if recorded is None else [each for each in recorded["schemas"] if each != new.declaration]
    return {"schemas": [*earlier, new.declaration]}


def writer_schemas(recorded: Mapping[str, Any] | None) -> dict[bytes, str]:
    """Each generation's schema by its fingerprint, to be looked up for ``ValueCodec.decode``.

    Of two generations with one fingerprint (one has more digits for a decimal, say) the last one counts: the check of
    their evolution has found that it reads the values of both.
    """
    declared = [] if recorded is None else [each for each in recorded["schemas"] if each is not None]
    schemas = [each for each in declared if builtin_kind(each) is None]
    return {SingleObjectCodec(json.loads(each)).fingerprint: each for each in schemas}
