"""``changelog-state agent``: own stores on this node until stopped."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from changelog_state.config import default_state_dir

__all__ = ["agent"]


def agent(
    state_dir: Annotated[
        Path | None, typer.Option(envvar="CHANGELOG_STATE_DIR", help="Where the stores are kept.")
    ] = None,
    cache_mb: Annotated[int, typer.Option(help="Block cache shared by all partitions.")] = 256,
    write_buffers_mb: Annotated[int, typer.Option(help="Write buffers shared by all partitions.")] = 256,
    staging_mb: Annotated[int, typer.Option(help="Staged mutations kept in memory; more go to disk.")] = 512,
    exit_with_drivers: Annotated[
        bool, typer.Option(help="Stop a minute after the last driver on this machine is gone.")
    ] = False,
) -> None:
    """Own stores on this node: serve tasks and drivers until stopped (Ctrl-C, SIGTERM)."""
    from changelog_state.light_start import without_pandas

    without_pandas()
    from changelog_state.agent.registry import AgentSettings
    from changelog_state.agent.server import run_agent

    logging.getLogger().setLevel(logging.INFO)
    settings = AgentSettings(state_dir or default_state_dir(), cache_mb, write_buffers_mb, staging_mb)
    run_agent(settings, exit_with_drivers=exit_with_drivers)
