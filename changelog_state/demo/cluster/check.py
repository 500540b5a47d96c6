"""``python -m changelog_state.demo.cluster.check``: is every purchase in the state and in the outputs exactly once?

Waits until the stream has processed what the topic has, so stop the purchases first. With ``--json`` one document:
purchases, users, batches, output_rows, mismatched_keys, mismatched_outputs, exactly_once.
Exit code 3 if something differs, as ``changelog-restore verify``.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from changelog_state.demo.check import differing_keys, differing_outputs
from changelog_state.demo.cluster.progress import last_committed_batch, offsets_of_batch
from changelog_state.demo.cluster.settings import ClusterSettings
from changelog_state.demo.purchases import end_offsets, totals_of_topic
from changelog_state.demo.results import output_rows, totals_of_state
from changelog_state.demo.settings import INPUT_TOPIC, DemoFailedError

__all__ = ["Verdict", "main"]

_DRAIN_SECONDS = 120.0
_POLL_SECONDS = 0.5
_MOST_SHOWN = 5


@dataclass(frozen=True)
class Verdict:
    purchases: int
    """In the input topic."""
    users: int
    batches: int
    output_rows: int
    mismatched_keys: list[str]
    """Users whose total in the state is not that of the input topic."""
    mismatched_outputs: list[str]
    """Users whose output rows do not hold each of their changes exactly once."""

    @property
    def exactly_once(self) -> bool:
        return not self.mismatched_keys and not self.mismatched_outputs

    def text(self) -> str:
        if self.exactly_once:
            return (
                f"EXACTLY ONCE: {self.purchases:,} purchases of {self.users:,} users in {self.batches:,} batches; "
                f"every total is right, in the state and in {self.output_rows:,} output rows"
            )
        lines = ["NOT EXACTLY ONCE"]
        for where, keys in (("state", self.mismatched_keys), ("outputs", self.mismatched_outputs)):
            lines.append(f"  {where}: {len(keys):,} users differ {', '.join(keys[:_MOST_SHOWN])}")
        return "\n".join(lines)


def main(arguments: list[str]) -> int:
    settings = ClusterSettings.from_environment()
    try:
        verdict = _check(settings)
    except DemoFailedError as error:
        print(error, file=sys.stderr)
        return 1
    if "--json" in arguments:
        print(json.dumps(asdict(verdict) | {"exactly_once": verdict.exactly_once}))
    else:
        print(verdict.text())
    return 0 if verdict.exactly_once else 3


def _check(settings: ClusterSettings) -> Verdict:
    job = settings.job()
    batch = _wait_until_drained(Path(job.checkpoint), settings.bootstrap_servers)
    expected = totals_of_topic(settings.bootstrap_servers, INPUT_TOPIC)
    with settings.service() as service:
        actual = totals_of_state(service)
    rows = list(output_rows(Path(job.outputs)))
    if last_committed_batch(Path(job.checkpoint)) != batch:
        raise DemoFailedError("purchases have arrived while they were counted: stop them first")
    return Verdict(
        purchases=sum(total.purchases for total in expected.values()),
        users=len(actual),
        batches=batch + 1,
        output_rows=len(rows),
        mismatched_keys=differing_keys(expected, actual),
        mismatched_outputs=differing_outputs(expected, rows),
    )


def _wait_until_drained(checkpoint: Path, bootstrap_servers: str) -> int:
    """The batch with which everything is processed that the topic has now."""
    ends = end_offsets(bootstrap_servers, INPUT_TOPIC)
    deadline = time.monotonic() + _DRAIN_SECONDS
    while True:
        batch = last_committed_batch(checkpoint)
        done = {} if batch is None else offsets_of_batch(checkpoint, batch, INPUT_TOPIC)
        if batch is not None and done == ends:
            return batch
        if any(done.get(partition, 0) > end for partition, end in ends.items()):
            raise DemoFailedError("purchases are still arriving: stop them first (docker compose stop purchases)")
        if time.monotonic() > deadline:
            raise DemoFailedError(
                f"the stream has not processed the input in {_DRAIN_SECONDS:.0f} s: it is at {done} of {ends}"
            )
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
