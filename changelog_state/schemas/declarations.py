"""What the variables of a store were declared as, through all generations: recorded, and agreed with anew (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from changelog_state.errors import SchemaEvolutionError
from changelog_state.schemas.evolution import check_evolution
from changelog_state.schemas.history import merge_history, writer_schemas
from changelog_state.schemas.value_codec import ValueCodec

__all__ = ["Declarations", "Declared"]


class Declared(NamedTuple):
    """A variable as a service declares it."""

    name: str
    kind: str
    codec: ValueCodec

    @property
    def recorded(self) -> tuple[str, str | None]:
        """What is recorded of it, as one generation."""
        return self.kind, self.codec.declaration


@dataclass(frozen=True)
class Declarations:
    recorded: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By name: ``kind``, and ``schemas``, the oldest first."""

    def agreed(self, declared: Iterable[Declared]) -> Declarations:
        """With these as the latest generation; raises if stored values could not be read as it is declared now."""
        recorded = dict(self.recorded)
        for name, kind, codec in declared:
            known = recorded.get(name)
            if known is not None and known["kind"] != kind:
                raise SchemaEvolutionError(
                    f"variable {name} is declared as a {kind}, but the store has it as a {known['kind']}; use "
                    "another name, or clear the store"
                )
            check_evolution(name, codec, [None] if known is None else known["schemas"])
            recorded[name] = {"kind": kind, **merge_history(known, codec)}
        return Declarations(recorded)

    def writer_schemas(self) -> dict[str, dict[bytes, str]]:
        """By variable, each generation's schema by its fingerprint."""
        return {name: writer_schemas(known) for name, known in self.recorded.items()}

    def has_old_generations(self, names: Iterable[str]) -> bool:
        return any(len(self.recorded[name]["schemas"]) > 1 for name in names if name in self.recorded)

    def encode(self) -> bytes:
        return json.dumps(self.recorded, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Declarations:
        return cls(json.loads(data))
