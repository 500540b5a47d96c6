"""``python -m tests.support.quick_agent STATE_DIR``: an agent without a command line, for tests that kill many."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from changelog_state.light_start import without_pandas

BULK_OFFSETS = "TEST_BULK_OFFSETS"
"""A variable: how long a stretch must be for the bulk way, so that tests need not write so much."""

if __name__ == "__main__":
    without_pandas()
    import restore.bulk
    from changelog_state.agent.hosting import run_agent
    from changelog_state.agent.registry import AgentSettings

    if BULK_OFFSETS in os.environ:
        restore.bulk.BULK_OFFSETS = int(os.environ[BULK_OFFSETS])
    logging.basicConfig(level=logging.INFO)
    run_agent(AgentSettings(Path(sys.argv[1]), cache_mb=16, write_buffers_mb=32), exit_with_drivers=True)
