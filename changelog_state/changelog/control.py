"""The control topic: which driver rules the store (its epoch), and what each batch was given."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from changelog_state.changelog.reader import ChangelogReader
from changelog_state.changelog.record import BatchRecord, Epoch, StoreIdentity
from changelog_state.changelog.writer import ChangelogWriter, IndeterminateCommitError, Records
from changelog_state.config import StoreConfig
from changelog_state.errors import BrokerUnavailableError, ChangelogMismatchError, StaleEpochError
from changelog_state.schemas.declarations import Declarations, Declared

__all__ = ["FAREWELL_KEY", "ControlLog", "ControlState", "read_control"]

_EPOCH_KEY = b"epoch"
_BATCH_KEY = b"batch"
_VARIABLES_KEY = b"variables"
_PROBE_KEY = b"probe"
FAREWELL_KEY = b"farewell"
_FAREWELL_SECONDS = 2.0
_VISIBLE_SECONDS = 10.0


@dataclass(frozen=True)
class ControlState:
    epoch: Epoch | None
    batch: BatchRecord | None
    variables: Declarations


def read_control(config: StoreConfig) -> ControlState:
    """The newest epoch and batch record. Takes nothing, changes nothing."""
    with ChangelogReader(config, config.control_topic, 0) as reader:
        epoch = reader.find_last(lambda message: message.key() == _EPOCH_KEY)
        batch = reader.find_last(lambda message: message.key() == _BATCH_KEY)
        # Each driver writes them right before its epoch.
        before = None if epoch is None else reader.record_at(max(0, epoch.offset() - 1), epoch.offset())
    has_variables = before is not None and before.key() == _VARIABLES_KEY
    return ControlState(
        Epoch.decode(epoch.value()) if epoch is not None else None,
        BatchRecord.decode(batch.value()) if batch is not None and batch.value() is not None else None,
        Declarations.decode(before.value()) if before is not None and has_variables else Declarations(),
    )


class ControlLog:
    """A driver's hold on the control topic. Making one fences every earlier driver."""

    def __init__(self, config: StoreConfig, identity: StoreIdentity, declared: Sequence[Declared] = ()) -> None:
        """
        1. Verify the store's identity, and that its variables can be read as they are declared now, before a driver
           that has it right is fenced.
        2. Take the transactional id: no earlier driver can write any more.
        3. Commit a probe, which ends whatever was open, and read what stands before it.
        4. Verify again; commit the variables and the next epoch, and wait until everybody can read it: a commit is
           answered a moment before that, and an agent that looks then would still obey the driver before.
        """
        self._config = config
        self._identity = identity
        self._declared = tuple(declared)
        known = read_control(config)
        _verify_epoch(config, known.epoch, identity)
        known.variables.agreed(declared)
        self._writer: ChangelogWriter | None = ChangelogWriter(
            config, config.control_topic, 0, config.control_transactional_id
        )
        self.driver = uuid.uuid4().hex
        self._write(_PROBE_KEY, self.driver.encode())
        before = read_control(config)
        self.batch = before.batch
        _verify_epoch(config, before.epoch, identity)
        self.epoch = before.epoch.epoch + 1 if before.epoch is not None else 1
        self.variables = before.variables.agreed(declared)
        self._await_visible(self._write_epoch())

    def record_batch(self, record: BatchRecord) -> None:
        """Make the batch record durable. Refused if a newer driver has taken over."""
        self._write(_BATCH_KEY, record.encode())
        self.batch = record

    def forget_batch(self) -> None:
        """The store is empty: there is no batch, and no variable was ever of any type."""
        self._write(_BATCH_KEY, None)
        self.batch = None
        self.variables = Declarations()
        self._await_visible(self._write_epoch())

    def declare_anew(self) -> None:
        """Before anything is written to a store that was emptied: this driver's variables are its first ones."""
        self.variables = Declarations().agreed(self._declared)
        self._await_visible(self._write_epoch())

    def _write_epoch(self) -> int:
        record = Epoch(self.epoch, self.driver, int(time.time() * 1000), **vars(self._identity))
        return self._write(_EPOCH_KEY, record.encode(), before=[([_VARIABLES_KEY], [self.variables.encode()])])

    def say_farewell(self) -> None:
        """This driver has ended in good order: whoever wants to clear the store need not wait."""
        self._write(FAREWELL_KEY, self.driver.encode(), _FAREWELL_SECONDS)

    def close(self) -> None:
        """Let go of the Kafka client, which lives as long as anything refers to it: Spark keeps the error of a failed
        batch for ever, and that refers to all that was there."""
        self._writer = None

    def _await_visible(self, offset: int) -> None:
        deadline = time.monotonic() + _VISIBLE_SECONDS
        with ChangelogReader(self._config, self._config.control_topic, 0) as reader:
            while reader.bounds()[1] <= offset:
                if time.monotonic() > deadline:
                    raise BrokerUnavailableError(
                        f"the epoch record of store {self._config.name} is committed, but cannot be read after "
                        f"{_VISIBLE_SECONDS:.0f} s; look at the broker's log, then try again: nothing is lost"
                    )
                time.sleep(0.002)

    def _write(
        self,
        key: bytes,
        value: bytes | None,
        patience_seconds: float | None = None,
        before: Sequence[Records] = (),
    ) -> int:
        assert self._writer is not None, "closed"
        try:
            return self._writer.write(
                before, lambda: (key, value), purpose="control", patience_seconds=patience_seconds
            )
        except IndeterminateCommitError as error:
            if error.fenced:
                raise StaleEpochError(
                    f"another driver has taken store {self._config.name}; this one must stop ({error})"
                ) from error
            raise BrokerUnavailableError(f"control record of store {self._config.name}: {error}") from error


def _verify_epoch(config: StoreConfig, recorded: Epoch | None, wanted: StoreIdentity) -> None:
    if recorded is not None:
        verify_identity(config, StoreIdentity.from_fields(vars(recorded)), wanted)


def verify_identity(config: StoreConfig, recorded: StoreIdentity, wanted: StoreIdentity) -> None:
    """A store keeps its names, partitioner, keys and format; anything else would read it wrongly."""
    for field, found in vars(recorded).items():
        expected = getattr(wanted, field)
        if found == expected:
            continue
        if field == "format" and found < expected:
            continue
        raise ChangelogMismatchError(
            f"store {config.name} was made with {field}={found!r}, but {expected!r} is wanted; "
            + _REMEDIES.get(field, "use the recorded value, or another store name")
        )


_REMEDIES = {
    "format": "it was written by a newer version of this library: upgrade here",
    "application": "two applications' names lead to the same topics: rename one",
    "store": "two stores' names lead to the same topics: rename one",
    "partitioner": "partitioning= is part of a store: use the one it was made with, or another store name",
    "key_types": "cast the key column to the recorded type, or use another store name",
}
