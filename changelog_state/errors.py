"""Every error a user can meet, one class per thing that they would do differently.

::

    ChangelogStateError
    ├── ConfigurationError          a setting is wrong; fix it and start again
    │   ├── ChangelogMismatchError  the topic or its metadata is not what this store needs
    │   ├── StateDirectoryError     the state directory cannot be used
    │   ├── AgentRefusedError       agent and caller do not trust each other: token or certificates
    │   ├── OutputTopicError        the topic that output rows go to is missing, or does not take them
    │   ├── SchemaEvolutionError    stored values cannot be read with the schema that is now declared
    │   └── SourceModeError         partitioning="source" cannot be proven for this DataFrame
    ├── InvalidInputError           the rows, keys, values or outputs do not fit
    │   ├── InvalidKeyError         a key is null, missing or of a type that cannot be a key
    │   ├── ValueEncodingError      a state value cannot be written as Avro, or is too large
    │   ├── OutputSchemaError       an output row does not fit the declared schema, or its topic
    │   └── FunctionError           the user's function raised or cannot be shipped
    ├── BatchRefusedError           this batch must not run against this state
    │   ├── CheckpointRolledBackError   the state is ahead of the checkpoint
    │   ├── NewQueryError               the state belongs to another query
    │   ├── OffsetsChangedError         the same batch with other source offsets
    │   ├── BatchAlreadyAppliedError    a second apply on one store in one batch
    │   ├── PartitioningError           tasks and state partitions do not match one to one
    │   ├── BatchRunningError           something needs the store while a batch is running
    │   └── ReplayImpossibleError       the last batch cannot be replayed on a rebuilt store
    ├── BatchSupersededError        an old batch's result would have to be recomputed
    ├── FencedError                 another driver or agent has taken over
    │   ├── StaleEpochError         a newer driver has taken the store
    │   └── StaleClaimError         the partition is owned by someone else now
    ├── UnavailableError            something is not there now; retrying is safe
    │   ├── BrokerUnavailableError  Kafka cannot be reached
    │   ├── AgentUnavailableError   the agent cannot be reached or started
    │   └── RestoreTimeoutError     partitions were not ready before the deadline
    └── StoreError                  the local store failed
        ├── PartitionPoisonedError  a local write failed; the partition is claimed again
        └── CorruptStoreError       the local store is damaged and must be rebuilt
"""

from __future__ import annotations

__all__ = [
    "AgentRefusedError",
    "AgentUnavailableError",
    "BatchAlreadyAppliedError",
    "BatchRefusedError",
    "BatchRunningError",
    "BatchSupersededError",
    "BrokerUnavailableError",
    "ChangelogMismatchError",
    "ChangelogStateError",
    "CheckpointRolledBackError",
    "ConfigurationError",
    "CorruptStoreError",
    "FencedError",
    "FunctionError",
    "InvalidInputError",
    "InvalidKeyError",
    "NewQueryError",
    "OffsetsChangedError",
    "OutputSchemaError",
    "OutputTopicError",
    "PartitionPoisonedError",
    "PartitioningError",
    "ReplayImpossibleError",
    "RestoreTimeoutError",
    "SchemaEvolutionError",
    "SourceModeError",
    "StaleClaimError",
    "StaleEpochError",
    "StateDirectoryError",
    "StoreError",
    "UnavailableError",
    "ValueEncodingError",
]


class ChangelogStateError(Exception):
    """Base of all errors raised by this library."""


def error_named(name: str, message: str) -> ChangelogStateError:
    """An error that came from another process as text. A class unknown here becomes the base class."""
    return globals()[name](message) if name in __all__ else ChangelogStateError(message)


class ConfigurationError(ChangelogStateError):
    """A setting is wrong."""


class ChangelogMismatchError(ConfigurationError):
    """The changelog topic, or what is recorded in it, differs from what the store needs."""


class StateDirectoryError(ConfigurationError):
    """The state directory is missing, not writable, or used by another agent."""


class AgentRefusedError(ConfigurationError):
    """An agent does not accept this process's token, or its certificate is not accepted here."""


class OutputTopicError(ConfigurationError):
    """The topic that output rows go to does not exist, or does not take them. Nothing of the batch was written."""


class SchemaEvolutionError(ConfigurationError):
    """Values in the store cannot be read with the schema that is now declared. No event has been processed."""


class SourceModeError(ConfigurationError):
    """``partitioning="source"`` cannot be proven for this DataFrame."""


class InvalidInputError(ChangelogStateError):
    """Rows, keys, values or outputs do not fit."""


class InvalidKeyError(InvalidInputError):
    """A key is null, missing, or of a type that cannot be a key."""


class ValueEncodingError(InvalidInputError):
    """A state value cannot be encoded, or its record is too large for the changelog."""


class OutputSchemaError(InvalidInputError):
    """An output row does not fit the declared schema, or the topic that it goes to."""


class FunctionError(InvalidInputError):
    """The user's function raised, or cannot be pickled."""


class BatchRefusedError(ChangelogStateError):
    """This batch must not run against this state. Nothing has been committed."""


class CheckpointRolledBackError(BatchRefusedError):
    """The state has seen a later batch than the one Spark asks for."""


class NewQueryError(BatchRefusedError):
    """The state was written by another query (usually: the checkpoint was deleted)."""


class OffsetsChangedError(BatchRefusedError):
    """The batch is known, but with other source offsets."""


class BatchAlreadyAppliedError(BatchRefusedError):
    """``apply`` has already succeeded for this store in this batch."""


class PartitioningError(BatchRefusedError):
    """Tasks and state partitions do not correspond one to one."""


class BatchRunningError(BatchRefusedError):
    """The store is needed exclusively while a batch is running."""


class ReplayImpossibleError(BatchRefusedError):
    """The last batch cannot be replayed: its before-images are gone from the changelog."""


class BatchSupersededError(ChangelogStateError):
    """The result of an earlier batch would have to be recomputed against later state."""


class FencedError(ChangelogStateError):
    """Another driver or agent has taken over."""


class StaleEpochError(FencedError):
    """A newer driver has taken the store."""


class StaleClaimError(FencedError):
    """The partition's claim is not the one this request was made for."""


class UnavailableError(ChangelogStateError):
    """Something cannot be reached now. Retrying later is safe."""


class BrokerUnavailableError(UnavailableError):
    """Kafka cannot be reached, or did not answer in time."""


class AgentUnavailableError(UnavailableError):
    """An agent cannot be reached or started."""


class RestoreTimeoutError(UnavailableError):
    """Some partitions were not ready before the deadline. No event has been processed."""


class StoreError(ChangelogStateError):
    """The local store failed."""


class PartitionPoisonedError(StoreError):
    """A local write failed; the partition has been closed and must be claimed again."""


class CorruptStoreError(StoreError):
    """The local store is damaged; it is moved aside and rebuilt from the changelog."""
