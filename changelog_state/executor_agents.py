"""Agents on a cluster, one per machine, started from inside of Spark's executors: the driver cannot reach further.

They are processes of their own and outlive the executors that started them; they end a while after the last driver.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from changelog_state import spark_bridge
from changelog_state.agent.launcher import find_agent, start_agent
from changelog_state.config import StoreConfig, default_state_dir
from changelog_state.errors import (
    AgentUnavailableError,
    ChangelogStateError,
    ConfigurationError,
    error_named,
)
from changelog_state.spark_bridge import Executor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["start_on_executors"]

logger = logging.getLogger(__name__)

KAFKA_VARIABLE = "CHANGELOG_STATE_KAFKA"
"""Client settings may hold secrets, and everybody on a machine can read its processes' arguments."""
_ROUNDS = 5
_SETTLE_SECONDS = 2.0
"""Executors come up one by one; without a limit for the last one this is how long the others wait for it."""
_PYTHON_ERROR = re.compile(r"^(\w*(?:Error|Exception)): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class _Order:
    """What a task has to know to start an agent."""

    application: str
    bootstrap_servers: str
    kafka: str = field(repr=False)
    state_dir: str | None


def start_on_executors(spark: SparkSession, config: StoreConfig, state_dir: str | None) -> list[dict[str, Any]]:
    """An agent on the machine of every executor, found or started; gives what each says about itself.

    Where an executor has a state directory of its own (``$CHANGELOG_STATE_DIR``; not with ``state_dir``) it counts as
    a machine of its own; executors that share one share its agent.

    1. Have Spark bring up executors, if there are none yet.
    2. A task on each looks for the agent of its state directory, and starts one if none answers.
    3. Again for executors that have not answered: they are new, or Spark has run their task elsewhere.
    """
    order = _Order(config.application, config.bootstrap_servers, json.dumps(dict(config.kafka)), state_dir)
    if not spark_bridge.executors(spark):
        spark_bridge.wake_executors(spark)
    begun = time.monotonic()
    answers: dict[Executor, dict[str, Any]] = {}
    for _ in range(_ROUNDS):
        missing = [executor for executor in spark_bridge.executors(spark) if executor not in answers]
        if not missing and answers:
            time.sleep(max(0.0, begun + _SETTLE_SECONDS - time.monotonic()))
            missing = [executor for executor in spark_bridge.executors(spark) if executor not in answers]
            if not missing:
                break
        answers |= _ask(spark, missing, order)
        _raise_failures(answers)
    else:
        _refuse_incomplete(spark, answers)
    # Not in the order in which the executors have come up: that is another one each time.
    in_order = sorted(answers.items(), key=lambda each: (each[0].host, each[0].id))
    agents = list({answer["agent"]["id"]: answer["agent"] for _, answer in in_order}.values())
    _refuse_unreachable(agents)
    logger.info("%d executors, %d agents: %s", len(answers), len(agents), ", ".join(a["address"] for a in agents))
    return agents


def _ask(spark: SparkSession, missing: list[Executor], order: _Order) -> dict[Executor, dict[str, Any]]:
    try:
        return spark_bridge.run_on_executors(spark, missing, functools.partial(_agent_here, order))
    except Exception as error:
        # Whatever Spark makes of it: the last thing that Python has said is the reason.
        found = _PYTHON_ERROR.findall(str(error))
        name, reason = found[-1] if found else (type(error).__name__, next(iter(str(error).splitlines()), ""))
        if name == "ModuleNotFoundError":
            raise ConfigurationError(
                f"agents cannot be started by executors ({reason}); install changelog_state and what it needs for "
                "the Python of every worker node (PYSPARK_PYTHON)"
            ) from error
        raise AgentUnavailableError(f"the job that starts agents on executors failed ({name}: {reason})") from error


def _agent_here(order: _Order, executor: Executor) -> dict[str, Any]:
    """In a task. An error travels as a value: Spark would run the task again, and bury the reason."""
    state_dir = default_state_dir() if order.state_dir is None else Path(order.state_dir)
    options = (
        *("--advertise", _joined(executor.host)),
        *("--application", order.application, "--bootstrap-servers", order.bootstrap_servers),
    )
    try:
        agent = find_agent(state_dir) or start_agent(state_dir, options, {KAFKA_VARIABLE: order.kafka})
        try:
            return {"agent": agent.hello()}
        finally:
            agent.close()
    except ChangelogStateError as error:
        return {"error": type(error).__name__, "message": str(error)}


def _joined(host: str) -> str:
    return f"[{host}]:0" if ":" in host and not host.startswith("[") else f"{host}:0"


def _raise_failures(answers: dict[Executor, dict[str, Any]]) -> None:
    failed = {executor: answer for executor, answer in answers.items() if "error" in answer}
    if not failed:
        return
    executor, first = next(iter(failed.items()))
    others = sorted({other.host for other in failed} - {executor.host})
    also = f" (and on {', '.join(others)})" if others else ""
    raise error_named(
        first["error"],
        f"no agent could be started on {executor.host}{also}, by executor {executor.id}: {first['message']}",
    )


def _refuse_incomplete(spark: SparkSession, answers: dict[Executor, dict[str, Any]]) -> None:
    missing = [executor for executor in spark_bridge.executors(spark) if executor not in answers]
    if missing or not answers:
        named = ", ".join(f"{executor.id} on {executor.host}" for executor in missing) or "none is left"
        raise AgentUnavailableError(
            f"not every executor could be reached to start its agent, in {_ROUNDS} attempts: {named}; executors come "
            "and go, or have no free core; try again, or start agents by hand and use agents='external'"
        )


def _refuse_unreachable(agents: list[dict[str, Any]]) -> None:
    """An agent that somebody has started for its own machine only is no use to the others."""
    closed = [agent for agent in agents if agent["address"].startswith("grpc+unix")]
    if closed and len(agents) > 1:
        raise ConfigurationError(
            f"the agent of {closed[0]['state_dir']} on {closed[0]['host']} serves its own machine only, but tasks "
            f"run on others too; stop it (pid {closed[0]['pid']}), or start it with --advertise"
        )
