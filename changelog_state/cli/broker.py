"""``changelog-state broker``: run a real Kafka until Ctrl-C, without Docker."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from changelog_state.broker.server import EmbeddedBroker, embedded_broker
from changelog_state.broker.versions import KAFKA_VERSION
from changelog_state.errors import BrokerUnavailableError

__all__ = ["broker"]


def broker(
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port on localhost.", show_default="a free one"),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Directory to keep topics in; given again, it is used again.",
            show_default="a temporary one, removed at the end",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout when Kafka is ready.")
    ] = False,
) -> None:
    """Run a real one-node Kafka on localhost until Ctrl-C. For tests and trials, not for production."""
    typer.echo(f"Starting Kafka {KAFKA_VERSION} (its jars are fetched from Maven once) ...", err=True)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with embedded_broker(port=port, data_dir=data_dir) as running:
            typer.echo(_as_json(running) if as_json else _as_text(running, temporary=data_dir is None))
            _wait_for_the_end(running)
    except KeyboardInterrupt:
        typer.echo("Kafka has stopped.", err=True)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(number: int, frame: FrameType | None) -> None:
    # SIGTERM then takes the same way as Ctrl-C, also in the middle of a start.
    raise KeyboardInterrupt


def _wait_for_the_end(running: EmbeddedBroker) -> None:
    pid = running.pid
    while running.is_running:
        time.sleep(0.2)
    raise BrokerUnavailableError(
        f"Kafka (pid {pid}) ended by itself: see {running.log_path} for the reason, and start it again"
    )


def _as_json(running: EmbeddedBroker) -> str:
    return json.dumps(
        {
            "bootstrap_servers": running.bootstrap_servers,
            "pid": running.pid,
            "data_dir": str(running.data_dir),
            "log": str(running.log_path),
        }
    )


def _as_text(running: EmbeddedBroker, *, temporary: bool) -> str:
    kept = "removed at the end" if temporary else "kept"
    return (
        f"Kafka {KAFKA_VERSION} is running: {running.bootstrap_servers}\n"
        f"  data  {running.data_dir} ({kept})\n"
        f"  log   {running.log_path}\n"
        f"Stop it with Ctrl-C, or: kill {os.getpid()}"
    )
