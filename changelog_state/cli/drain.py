"""``changelog-state agent drain``: have an agent give away what it owns, before its node is taken down."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from changelog_state.agent.client import AgentClient
from changelog_state.agent.launcher import find_agent, stop_agent
from changelog_state.agent.transport import best_address
from changelog_state.changelog.agents import AgentDirectory
from changelog_state.cli.options import Common, with_common_options
from changelog_state.cli.output import print_json
from changelog_state.cli.running import FAILED
from changelog_state.errors import AgentUnavailableError

__all__ = ["drain"]

_POLL_SECONDS = 0.2
_LINE_SECONDS = 5.0
_STOP_SECONDS = 60.0
_LONELY_SECONDS = 15.0
"""After so long without a driver, nobody is going to move anything."""


@with_common_options(without=("store", "partitions"))
def drain(
    common: Common,
    agent: Annotated[
        str | None,
        typer.Option(help="A registered agent, by id or host:port.", show_default="the one of --state-dir"),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait until it owns nothing.")] = 600.0,
    stop: Annotated[bool, typer.Option(help="Stop the agent when it owns nothing any more.")] = False,
    undo: Annotated[bool, typer.Option(help="End draining: it may be given partitions again.")] = False,
) -> None:
    """Have an agent give away its partitions, and wait until it owns none.

    The running driver moves them: each new owner is warmed up first, so batches go on. Exit code 1 if the agent
    still owns partitions when the time is up; it goes on draining then.

    With --json: agent, draining, owned, following, driver_seen_seconds_ago, stopped.
    """
    with closing(_registered(common, agent) if agent is not None else _local(common.directory())) as client:
        described = client.hello()
        name = described["id"]
        summary = client.drain(undo=undo)
        stopped = False
        if not undo:
            summary = _wait(client, name, summary, timeout)
            if stop and not summary["owned"]:
                _stop(client, described)
                stopped = True
    if common.as_json:
        print_json({"agent": name, **summary, "stopped": stopped})
    if undo:
        _say(f"agent {name} is not draining any more")
    elif summary["owned"]:
        _say(f"changelog-state: {_still_owning(name, summary, timeout)}")
        raise typer.Exit(FAILED)
    else:
        _say(f"agent {name} owns nothing{' and has stopped' if stopped else '; it can be stopped'}")


def _local(state_dir: Path) -> AgentClient:
    client = find_agent(state_dir)
    if client is None:
        raise AgentUnavailableError(
            f"no agent answers for state directory {state_dir}; give the --state-dir of one that is running on this "
            "machine, or --agent for one on another"
        )
    return client


def _registered(common: Common, wanted: str) -> AgentClient:
    cluster = common.cluster()
    with closing(AgentDirectory(cluster)) as directory:
        records = directory.read()
    for record in records:
        if wanted in (record.id, record.advertised):
            return AgentClient(best_address(record.address, record.socket))
    known = ", ".join(f"{record.advertised} ({record.id})" for record in records) or "none"
    raise AgentUnavailableError(f"no agent {wanted} is registered in {cluster.agents_topic}; registered are: {known}")


def _wait(client: AgentClient, name: str, summary: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
    started = time.monotonic()
    shown, next_line = None, started
    while summary["owned"] and time.monotonic() - started < timeout_seconds:
        if summary["owned"] != shown or time.monotonic() >= next_line:
            shown, next_line = summary["owned"], time.monotonic() + _LINE_SECONDS
            _say(f"draining {name}: owns {_partitions(shown)}{_loneliness(summary)}")
        time.sleep(_POLL_SECONDS)
        summary = client.summary()
    return summary


def _stop(client: AgentClient, described: dict[str, Any]) -> None:
    if client.address == described["socket"]:
        stop_agent(client, Path(described["state_dir"]))
        return
    client.stop()
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline:
        try:
            client.hello()
        except AgentUnavailableError:
            return
        time.sleep(_POLL_SECONDS)
    raise AgentUnavailableError(f"agent {described['id']} is still stopping after {_STOP_SECONDS:.0f} s; see its log")


def _still_owning(name: str, summary: dict[str, Any], timeout_seconds: float) -> str:
    text = f"agent {name} still owns {_partitions(summary['owned'])} after {timeout_seconds:.0f} s"
    if _is_lonely(summary):
        return (
            f"{text}, and no driver is there to move them{_seen(summary)}; start the query, whose next batch moves "
            "them, or stop the agent: what it owns is restored elsewhere when it is needed"
        )
    return f"{text}; it goes on draining: wait for longer with --timeout, or see that another agent has room"


def _loneliness(summary: dict[str, Any]) -> str:
    return f"; no driver is there to move them{_seen(summary)}" if _is_lonely(summary) else ""


def _is_lonely(summary: dict[str, Any]) -> bool:
    seen = summary["driver_seen_seconds_ago"]
    return seen is None or seen > _LONELY_SECONDS


def _seen(summary: dict[str, Any]) -> str:
    seen = summary["driver_seen_seconds_ago"]
    return "" if seen is None else f" (the last was here {seen:.0f} s ago)"


def _partitions(number: int) -> str:
    return "1 partition" if number == 1 else f"{number} partitions"


def _say(text: str) -> None:
    typer.echo(text, err=True)
