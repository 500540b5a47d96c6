"""Between batches, and while they run: keeps replicas where they should be and prepares planned moves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from changelog_state.config import StoreConfig
from changelog_state.errors import ChangelogStateError
from restore.agent_watch import AgentWatch, Pulse
from restore.assignment import AgentView, Held, Plan, assign
from restore.cluster_agent import Agent
from restore.replica_lag import LagLimits, replica_warning, table_warning

__all__ = ["Steward", "views_of"]

logger = logging.getLogger(__name__)

_ROUND_SECONDS = 0.5
_DISCOVER_SECONDS = 2.0
_FAILED_SECONDS = 5.0
"""How long a replica that failed is left alone."""
_WARN_SECONDS = 60.0


class Steward:
    """A thread of the driver. It decides nothing that a batch depends on: moves happen at the next gate.

    ``owners``: whom the gate holds for the owner of each partition; ``claims``: the highest claim known of each.
    ``discover``: the agents that are registered now.
    """

    def __init__(
        self,
        config: StoreConfig,
        epoch: int,
        watch: AgentWatch,
        *,
        standby_replicas: int,
        restore_memory_mb: int,
        limits: LagLimits,
        owners: Callable[[], Mapping[int, str]],
        claims: Mapping[int, int],
        discover: Callable[[], Sequence[Agent]] | None,
    ) -> None:
        self._config = config
        self._epoch = epoch
        self._watch = watch
        self._standby_replicas = standby_replicas
        self._restore_memory_mb = restore_memory_mb
        self._limits = limits
        self._owners = owners
        self._claims = claims
        self._discover = discover
        self._discovered = 0.0
        self._due: dict[object, float] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._latest: tuple[Plan, dict[int, str], set[str]] | None = None
        """The plan, the owners that it was made for, and the agents that were there."""

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="steward", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(_ROUND_SECONDS):
            try:
                self.round()
            except ChangelogStateError as error:
                logger.info("%s: replicas are left as they are for now: %s", self._config.name, error)
            except Exception:
                logger.exception("%s: a defect in keeping replicas, report it", self._config.name)

    def round(self) -> None:
        """
        1. Agents that have come or gone.
        2. The plan for those that answer.
        3. Each is told what to follow, if it does something else.
        """
        self._look_for_agents()
        owners = self._owners()
        pulses = self._watch.pulses()
        if not owners or not pulses:
            return
        views = views_of(pulses, owners, self._claims)
        begun = self.plan.moves if self.plan is not None else None
        plan = assign(range(self._config.partitions), views, self._standby_replicas, begun=begun)
        for address, pulse in pulses.items():
            # Who is warm and takes over at the next gate stays warm until then.
            wanted = sorted(
                p
                for p, followers in plan.followers.items()
                if address in followers or (plan.owners[p] == address != owners.get(p))
            )
            if self._differs(address, pulse, wanted):
                self._tell(address, wanted)
        self._warn(pulses, plan)
        self._latest = plan, dict(owners), set(pulses)

    @property
    def plan(self) -> Plan | None:
        return None if self._latest is None else self._latest[0]

    def ready_moves(self) -> dict[int, str]:
        """Partitions whose next owner is there, and warm or the best there is now that the present one is lost.

        None if the owners are not those that were planned for; nor away from one that was lost and is back.
        """
        latest, owners = self._latest, self._owners()
        if latest is None or latest[1] != owners:
            return {}
        plan, _, there = latest
        return {
            p: address
            for p, address in plan.owners.items()
            if address != owners[p] and (owners[p] in there or self._watch.lost_among([owners[p]]) is not None)
        }

    def _look_for_agents(self) -> None:
        now = time.monotonic()
        if self._discover is None or now - self._discovered < _DISCOVER_SECONDS:
            return
        self._discovered = now
        found = {agent.address: agent for agent in self._discover()}
        new = [agent for agent in found.values() if not self._watch.is_watched(agent.address, agent)]
        if new:
            self._watch.look(new)
        in_use = set(self._owners().values())
        for address in self._watch.watched() - found.keys() - in_use:
            self._watch.forget(address)

    def _differs(self, address: str, pulse: Pulse, wanted: list[int]) -> bool:
        tailing = {s["partition"] for s in pulse.partitions if s["tailing"]}
        replaced = any(
            s["claim"] is not None and s["claim"] < self._claims.get(s["partition"], -1) for s in pulse.partitions
        )
        to_come = set(wanted) - tailing
        failed = {s["partition"] for s in pulse.partitions if s["phase"] == "FAILED"} & to_come
        if to_come and to_come == failed and not self._again((address, "failed"), _FAILED_SECONDS):
            return False
        return replaced or bool(to_come) or bool(tailing - set(wanted))

    def _tell(self, address: str, wanted: list[int]) -> None:
        claims = dict(self._claims)

        def follow(agent: Agent) -> None:
            agent.follow(self._config, self._epoch, wanted, claims, self._restore_memory_mb)

        try:
            self._watch.call(address, follow)
        except ChangelogStateError as error:
            if self._again((address, "follow")):
                logger.warning("%s: agent at %s does not follow: %s", self._config.name, address, error)

    def _warn(self, pulses: Mapping[str, Pulse], plan: Plan) -> None:
        for pulse in pulses.values():
            for status in pulse.partitions:
                text = replica_warning(status["follower"], self._limits)
                if text and self._again((pulse.agent["id"], status["partition"])):
                    logger.warning(
                        "%s partition %d: the replica at %s %s",
                        self._config.name,
                        status["partition"],
                        pulse.agent["id"],
                        text,
                    )
            for table in pulse.tables:
                text = table_warning(table, self._limits)
                if text and self._again((pulse.agent["id"], table["table"])):
                    logger.warning(
                        "global table %s/%s at agent %s %s",
                        table["application"],
                        table["table"],
                        pulse.agent["id"],
                        text,
                    )
        if plan.missing_replicas and self._again("missing"):
            logger.warning(
                "%s: %d replicas cannot be placed, as they would share a host with their owner or each other; "
                "start agents on more hosts",
                self._config.name,
                plan.missing_replicas,
            )

    def _again(self, what: object, pause_seconds: float = _WARN_SECONDS) -> bool:
        """Whether this is due, for the first time or after the pause."""
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + pause_seconds
        return True


def views_of(
    pulses: Mapping[str, Pulse],
    owners: Mapping[int, str] | None = None,
    claims: Mapping[int, int] | None = None,
    failing: Mapping[str, frozenset[int]] | None = None,
) -> list[AgentView]:
    """What agents have said, as the assignment sees it. ``owners`` are taken for what they are about to be."""
    views = []
    for address, pulse in pulses.items():
        held = {status["partition"]: _held(status) for status in pulse.partitions}
        for partition, owner in (owners or {}).items():
            if owner == address:
                known = held.get(partition, Held("CLOSED"))
                phase = "ACTIVE" if known.phase == "ACTIVE" else "RESTORING"
                # Above all claims that others may still hold, also when its own is only about to be made.
                held[partition] = Held(phase, (claims or {}).get(partition, 0) + 1, known.position)
        views.append(
            AgentView(
                address,
                held,
                (failing or {}).get(address, frozenset()),
                host=pulse.agent["host"],
                rack=pulse.agent.get("rack"),
                draining=bool(pulse.agent.get("draining")),
            )
        )
    return views


def _held(status: Mapping[str, object]) -> Held:
    follower = status["follower"]
    if isinstance(follower, dict):
        return Held("FOLLOWING", None, follower["position"], follower["lag_records"])
    position = status["position"] if status["position"] is not None else status["disk_position"]
    # Whose claim is queued is about to be the owner: were it given to another one, it would be fenced by that claim.
    phase = "RESTORING" if status["claim_pending"] else str(status["phase"])
    return Held(phase, status["claim"], position)  # type: ignore[arg-type]
