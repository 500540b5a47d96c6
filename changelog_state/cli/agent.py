"""``changelog-state agent``: own stores on this node until stopped."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from changelog_state.cli.drain import drain
from changelog_state.cli.options import Common, with_common_options
from changelog_state.errors import ConfigurationError

__all__ = ["agent"]

agent = typer.Typer()


@with_common_options(without=("store", "partitions", "as_json"))
def serve(
    common: Common,
    context: typer.Context,
    advertise: Annotated[
        str | None,
        typer.Option(help="host:port under which other machines reach this agent; port 0: any.", metavar="HOST:PORT"),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="Where to listen for them.",
            metavar="HOST:PORT",
            show_default="all addresses; the same for a loopback address",
        ),
    ] = None,
    rack: Annotated[str | None, typer.Option(help="Replicas are kept in another rack than their owner.")] = None,
    cache_mb: Annotated[int, typer.Option(help="Block cache shared by all partitions.")] = 256,
    write_buffers_mb: Annotated[int, typer.Option(help="Write buffers shared by all partitions.")] = 256,
    staging_mb: Annotated[int, typer.Option(help="Staged mutations kept in memory; more go to disk.")] = 512,
    exit_with_drivers: Annotated[bool, typer.Option(help="Stop a minute after the last driver is gone.")] = False,
) -> None:
    """Own stores on this node: serve tasks and drivers until stopped (Ctrl-C, SIGTERM).

    With --advertise also for other machines, which find the agent in the topic <application>-agents: that needs
    --application and --bootstrap-servers, and beyond loopback the variables CHANGELOG_STATE_TLS_CERT,
    CHANGELOG_STATE_TLS_KEY and CHANGELOG_STATE_TOKEN.
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context)
        return
    from changelog_state.light_start import without_pandas

    without_pandas()
    from changelog_state.agent.doors import DoorSettings
    from changelog_state.agent.hosting import Membership, run_agent
    from changelog_state.agent.registry import AgentSettings

    logging.getLogger().setLevel(logging.INFO)
    membership = None
    if advertise is not None:
        membership = Membership(DoorSettings.from_options(advertise, listen), common.cluster(), rack)
    elif listen is not None:
        raise ConfigurationError("--listen is given, but not --advertise; say under which host:port it is reached")
    settings = AgentSettings(common.directory(), cache_mb, write_buffers_mb, staging_mb)
    run_agent(settings, exit_with_drivers=exit_with_drivers, membership=membership)


def _refuse_misplaced(context: typer.Context) -> None:
    """An option before the command's name would silently be about nothing."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigurationError(
                f"{parameter.opts[0]} stands before {context.invoked_subcommand}; give its options behind it"
            )


agent.callback(invoke_without_command=True)(serve)
agent.command()(drain)
