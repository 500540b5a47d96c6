"""The story: a stream, three kills, and a comparison with what the input says."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from changelog_state.broker import EmbeddedBroker, embedded_broker, spark_connector_jars
from changelog_state.broker.jars import kafka_jars
from changelog_state.demo.check import differing_keys, differing_outputs
from changelog_state.demo.driver_process import BatchDone, Batches, DriverProcess
from changelog_state.demo.kills import KILLS, Kill, Killing
from changelog_state.demo.narrator import Narrator
from changelog_state.demo.processes import agent_of, kill_leftovers, stop_agent
from changelog_state.demo.purchases import PurchaseProducer, create_input_topic, totals_of_topic
from changelog_state.demo.report import Report
from changelog_state.demo.results import output_rows, totals_of_state
from changelog_state.demo.settings import APPLICATION, INPUT_TOPIC, STORE, DemoFailedError, DemoSettings, Places
from changelog_state.demo.stream import Job

__all__ = ["run_demo"]

_POLL_SECONDS = 0.005
_UNUSUAL_SECONDS = 2.0
_START_SECONDS = 180.0
_RECOVERY_SECONDS = 180.0
_DRAIN_SECONDS = 300.0
_RATE_WINDOW_SECONDS = 5.0
_CALM_BATCHES = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_demo(settings: DemoSettings, narrator: Narrator) -> Report:
    """Everything that is started here is stopped here. Files stay if they are wanted, or if something went wrong."""
    places = Places(Path(tempfile.mkdtemp(prefix="changelog-state-demo-")))
    keep = settings.keep
    try:
        places.make()
        with narrator, _orderly_end() as running:
            report = _Demo(settings, narrator, places, running).run()
        keep = keep or not report.exactly_once
        return report
    except Exception as error:
        logs = places.logs()
        if not logs:
            raise  # nothing was running yet, so the error says it all
        keep = True
        listed = "\n".join(f"  {path}" for path in logs)
        raise DemoFailedError(f"{error}\nEverything is kept in {places.root}; the logs:\n{listed}") from error
    finally:
        if not keep:
            shutil.rmtree(places.root, ignore_errors=True)


@contextmanager
def _orderly_end() -> Iterator[ExitStack]:
    """A stack of things to stop, and a second Ctrl-C does not cut that short."""
    running = ExitStack()
    try:
        yield running
    finally:
        previous = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
        try:
            running.close()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


class _Demo:
    def __init__(self, settings: DemoSettings, narrator: Narrator, places: Places, running: ExitStack) -> None:
        self.places = places
        self._settings = settings
        self._narrator = narrator
        self._running = running
        self._batches = Batches()
        self._kills: list[Kill] = []
        self._job: Job | None = None
        self._driver: DriverProcess | None = None
        self._purchases: PurchaseProducer | None = None
        self._quiet = False

    def run(self) -> Report:
        """
        1. Start Kafka, the purchases, and the driver with its query.
        2. Kill, let it recover, let it run calmly for a while; three times.
        3. Stop the purchases, let the query process what is left, stop it.
        4. Compare.
        """
        self._start()
        for number, killing in enumerate(KILLS, 1):
            self._calm()
            self._kill(number, killing)
        self._calm()
        self._finish()
        return self._compare()

    # -- 1 -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        settings, say = self._settings, self._narrator.say
        self._fetch_jars()
        say("starting Kafka: a real broker, embedded, for this run only")
        broker: EmbeddedBroker = self._running.enter_context(embedded_broker(data_dir=self.places.broker))
        # Callbacks run last in, first out: whoever uses something is gone before it is.
        self._running.callback(kill_leftovers, self.places.faults)
        self._running.callback(stop_agent, self.places.state_dir)
        create_input_topic(broker.bootstrap_servers, INPUT_TOPIC, settings.partitions)
        self._job = Job(
            application=APPLICATION,
            store=STORE,
            bootstrap_servers=broker.bootstrap_servers,
            input_topic=INPUT_TOPIC,
            partitions=settings.partitions,
            state_dir=str(self.places.state_dir),
            checkpoint=str(self.places.checkpoint),
            outputs=str(self.places.outputs),
            scratch=str(self.places.scratch),
        )
        say(f"Kafka is up at {broker.bootstrap_servers}")
        say("starting the driver: a Spark stream from Kafka; its foreachBatch keeps a total per user with apply()")
        self.start_driver()
        self.wait_until(lambda: self.driver.has_said("query_started"), "Spark to start", _START_SECONDS)
        self._purchases = PurchaseProducer(
            broker.bootstrap_servers,
            INPUT_TOPIC,
            events=settings.events,
            seconds=settings.seconds,
            users=settings.users,
        )
        self._running.callback(self._purchases.cancel)
        say(
            f"the query runs; {settings.users:,} users begin to buy at random, "
            f"{self._purchases.rate:,.0f} purchases/s into topic {INPUT_TOPIC!r}"
        )
        self.wait_until(self._batches.all, "the first batch", _START_SECONDS)
        first = self._batches.all()[0]
        say(f"the first batch is done; it also started an agent, which owns the state ({first.seconds:.1f} s)")

    def _fetch_jars(self) -> None:
        """Nothing to do, except the very first time; a newcomer should know why that takes longer."""
        text = "fetching Kafka and Spark's connector from Maven: only this first time, and it may take a minute"
        hint = threading.Timer(_UNUSUAL_SECONDS, self._narrator.say, [text])
        hint.start()
        try:
            kafka_jars()
            spark_connector_jars()
        finally:
            hint.cancel()

    def start_driver(self) -> None:
        assert self._job is not None
        self._driver = DriverProcess(self._job, self.places, self._batches)
        self._running.callback(self._driver.kill)

    @property
    def driver(self) -> DriverProcess:
        assert self._driver is not None
        return self._driver

    # -- 2 -----------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """A few batches in which nothing happens."""
        begun = time.monotonic()
        calm_until = begun + self._settings.seconds / 10

        def calm() -> bool:
            done = sum(done.at > begun for done in self._batches.all())
            return done >= _CALM_BATCHES and time.monotonic() >= calm_until

        self.wait_until(calm, "the next batches", _RECOVERY_SECONDS)

    def _kill(self, number: int, killing: Killing) -> None:
        say = self._narrator.say
        agent = agent_of(self.places.state_dir)
        moment = killing.strike(self)
        say(f"KILLED ({number} of {len(KILLS)}): the {killing.what}, {killing.how}", style="bold red")
        if killing.revive is not None:
            say("starting it again, with the same checkpoint")
            killing.revive(self)
        self.wait_until(
            lambda: self._batches.first_after(moment), f"recovery of the {killing.what}", _RECOVERY_SECONDS
        )
        done = self._batches.first_after(moment)
        assert done is not None
        kill = Kill(killing.what, killing.how, self._narrator.seconds(moment), done.at - moment)
        self._kills.append(kill)
        same_agent = agent == agent_of(self.places.state_dir)
        how = "the agent had lived on and kept the state" if same_agent else self._restored()
        say(
            f"RECOVERED in {kill.recovered_in_seconds:.1f} s: batch {done.batch} is done; {how}",
            style="bold green",
        )

    def _restored(self) -> str:
        assert self._job is not None
        with self._job.service() as service:
            restores = [row["restore"] for row in service.status()["partitions"]]
        records = sum(restore["records"] for restore in restores if restore)
        return f"a new agent has read {records:,} records back from the changelog"

    # -- 3 -----------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        assert self._purchases is not None
        self.wait_until(self._purchases.has_sent_all, "the last purchases", self._settings.seconds + _DRAIN_SECONDS)
        self._purchases.finish()
        self._narrator.say(f"the purchases end, {self._purchases.sent:,} in all; the stream processes what is left")
        self.driver.finish()
        self.wait_until(lambda: self.driver.has_said("drained"), "the stream to process what is left", _DRAIN_SECONDS)
        self._quiet = True
        self._narrator.doing("stopping the query and Spark")
        self.wait_until(self.driver.has_ended, "the driver to stop", _DRAIN_SECONDS)
        self._narrator.say(
            "the stream has stopped; comparing the state with totals computed from the input topic alone"
        )

    # -- 4 -----------------------------------------------------------------------------------------------

    def _compare(self) -> Report:
        assert self._job is not None
        assert self._purchases is not None
        self._narrator.doing("reading the input topic, the state and the outputs")
        expected = totals_of_topic(self._job.bootstrap_servers, INPUT_TOPIC)
        with self._job.service() as service:
            actual = totals_of_state(service)
        rows = list(output_rows(self.places.outputs))
        batches = self._batches.all()
        streamed_seconds = max(done.at for done in batches) - self._purchases.started_at
        events = sum(total.purchases for total in expected.values())
        mismatched_keys = differing_keys(expected, actual)
        mismatched_outputs = differing_outputs(expected, rows)
        kept = self._settings.keep or mismatched_keys or mismatched_outputs
        return Report(
            events=events,
            keys=len(actual),
            batches=len(batches),
            kills=self._kills,
            expected_total=sum(total.cents for total in expected.values()),
            actual_total=sum(total.cents for total in actual.values()),
            mismatched_keys=mismatched_keys,
            mismatched_outputs=mismatched_outputs,
            output_rows=len(rows),
            seconds=self._narrator.seconds(),
            throughput_per_second=events / streamed_seconds,
            fastest_batch_per_second=max(map(_rate, batches)),
            data_dir=str(self.places.root) if kept else None,
        )

    # -- waiting -----------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], Any], what: str, timeout_seconds: float) -> None:
        """Wait, show how the stream is doing, and notice at once if something has died that should not."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            self.driver.check()
            if self._purchases is not None:
                self._purchases.check()
            if time.monotonic() > deadline:
                raise DemoFailedError(f"waited {timeout_seconds:.0f} s in vain for {what}")
            if not self._quiet and self._narrator.wants_progress():
                self._narrator.progress(self._progress())
            time.sleep(_POLL_SECONDS)

    def _progress(self) -> str:
        batches = self._batches.all()
        if self._purchases is None:
            return "Spark is starting"
        if not batches:
            return f"{self._purchases.sent:,} purchases are waiting"
        since = time.monotonic() - _RATE_WINDOW_SECONDS
        recent = sum(done.purchases for done in batches if done.at > since) / _RATE_WINDOW_SECONDS
        processed = sum(done.purchases for done in batches)
        waiting = max(0, self._purchases.sent - processed)
        return (
            f"batch {max(done.batch for done in batches)}: {processed:,} purchases processed, {recent:,.0f}/s, "
            f"{waiting:,} waiting"
        )


def _rate(done: BatchDone) -> float:
    return done.purchases / done.seconds
