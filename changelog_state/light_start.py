"""For processes of our own that never use pandas: the agent, the restore commands.

The first array that pyarrow makes of a list has it look for pandas, and importing that takes more than a second,
in the middle of the first request or restore.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

__all__ = ["without_pandas"]


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("this process does without pandas", name=name)


def without_pandas() -> None:
    """Call it before the first use of pyarrow, which then takes pandas for not installed."""
    sys.meta_path.insert(0, _NoPandas())
