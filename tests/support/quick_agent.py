"""``python -m tests.support.quick_agent STATE_DIR``: an agent that is up in half a second, for tests that kill many.

The same server as ``changelog-state agent`` runs, without a command line, and without pandas, which pyarrow imports
at an agent's first answer if it can.
"""

from __future__ import annotations

import logging
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "pandas":
            raise ImportError("not here")


if __name__ == "__main__":
    sys.meta_path.insert(0, _NoPandas())
    from changelog_state.agent.registry import AgentSettings
    from changelog_state.agent.server import run_agent

    logging.basicConfig(level=logging.INFO)
    run_agent(AgentSettings(Path(sys.argv[1]), cache_mb=16, write_buffers_mb=32), exit_with_drivers=True)
