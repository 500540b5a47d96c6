"""Output rows that also go to a topic, in the same transactions as the state's changes: asked for, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from changelog_state.changelog.topic import RECORD_OVERHEAD_BYTES, Topic, lookup_any_topic
from changelog_state.config import StoreConfig
from changelog_state.errors import ConfigurationError, OutputTopicError
from changelog_state.settings import check_choice
from changelog_state.task.output_avro import avro_rows
from changelog_state.task.output_records import OutputRecords, record_name
from changelog_state.task.spec import OutputFormat, OutputTopic

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["KafkaOutput", "OutputTopics", "planned"]

_FORMATS = ("json", "avro", "columns")
_SENT_AT_ONCE_BYTES = 1_000_000
"""What the client puts into one request at the most, unless ``batch.size`` says something else."""


@dataclass(frozen=True)
class KafkaOutput:
    """A topic for output rows, where more is to be said than its name.

    ``key``: the column, or columns, that make a record's key; if it is left out, those with the names of the batch's
    key.
    ``format``: ``"json"``, an object per row; ``"avro"``, a single object per row (see ``avro_schema``); or
    ``"columns"``: the rows have a column ``value`` and, if wanted, ``key`` and ``headers``, as for Spark's own sink.
    """

    topic: str
    key: str | Sequence[str] | None = None
    format: OutputFormat = "json"

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise ConfigurationError(f"output topic is {self.topic!r}; give the topic's name")
        check_choice("format", self.format, _FORMATS)
        if self.key is not None and not isinstance(self.key, str):
            object.__setattr__(self, "key", tuple(self.key))
        if self.key is not None and (self.format == "columns" or not self.key):
            raise ConfigurationError(
                f"KafkaOutput for topic {self.topic} has key={self.key!r} and format={self.format!r}; "
                + ("name the column 'key' instead" if self.format == "columns" else "give a column, or leave it out")
            )

    def avro_schema(self, schema: str | StructType) -> str:
        """The schema of the records' values, as JSON text, for rows of ``schema``: for whoever reads the topic."""
        return avro_rows(_arrow_schema(schema), record_name(self.topic)).single.schema_json


def planned(
    given: str | KafkaOutput, row_schema: str | StructType, key_columns: Sequence[str], config: StoreConfig
) -> OutputTopic:
    """Checked against the rows, as far as that is possible without asking Kafka."""
    output = KafkaOutput(given) if isinstance(given, str) else given
    if not isinstance(output, KafkaOutput):
        raise ConfigurationError(f"output_topic is {given!r}; give a topic's name, or a KafkaOutput")
    own_ends = ("-changelog", "-control")
    own = output.topic.startswith(f"{config.application}-") and output.topic.endswith(own_ends)
    if own or output.topic == config.cluster.agents_topic:
        raise OutputTopicError(
            f"topic {output.topic} is one that application {config.application} keeps its state with; give output "
            "rows a topic of their own"
        )
    schema = _arrow_schema(row_schema)
    topic = OutputTopic(output.topic, output.format, _key(output, schema, key_columns))
    if output.format == "columns":
        _check_columns(topic, schema)
    nothing = [pa.nulls(0, field.type) for field in schema]
    for _ in OutputRecords(topic, schema).of(pa.record_batch(nothing, schema=schema)):  # raises for a wrong type
        pass
    return topic


def _arrow_schema(schema: str | StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    from changelog_state.task.schema import user_schema

    return to_arrow_schema(user_schema(schema))


def _key(output: KafkaOutput, schema: pa.Schema, key_columns: Sequence[str]) -> tuple[str, ...]:
    if output.format == "columns":
        return ("key",) if "key" in schema.names else ()
    given = output.key or key_columns
    wanted = (given,) if isinstance(given, str) else tuple(given)
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        whose = "the batch's key columns" if output.key is None else "KafkaOutput(key=)"
        raise OutputTopicError(
            f"records for topic {output.topic} need a key, and {whose} {missing} are not in the output rows "
            f"{schema.names}; give KafkaOutput({output.topic!r}, key=...) one of these, or a list of them"
        )
    return wanted


def _check_columns(topic: OutputTopic, schema: pa.Schema) -> None:
    fitting = {"key": _is_text, "value": _is_text, "headers": _is_headers}
    wrong = {field.name: str(field.type) for field in schema if not fitting.get(field.name, _is_any)(field.type)}
    if wrong or "value" not in schema.names:
        raise OutputTopicError(
            f"rows for topic {topic.name} have {wrong or schema.names}; format='columns' needs a column value, and "
            "takes key (both string or binary) and headers (array<struct<key string, value binary>>)"
        )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    return list(fields.items()) == [("key", pa.string()), ("value", pa.binary())]


def _is_any(kind: pa.DataType) -> bool:
    return True


class OutputTopics:
    """What is known of the topics that rows go to: looked at once, and again after something went wrong."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._known: dict[str, Topic] = {}

    def forget(self) -> None:
        self._known.clear()

    def fitted(self, output: OutputTopic, changelog: Topic) -> OutputTopic:
        """With what the topic takes. It must exist: one that was made by writing to it would hide a misspelt name."""
        topic = self._known.get(output.name) or lookup_any_topic(self._config, output.name)
        if topic is None:
            raise OutputTopicError(
                f"topic {output.name} does not exist on {self._config.bootstrap_servers}; create it, with as many "
                f"partitions as its readers need (kafka-topics.sh --create --topic {output.name} --partitions 8)"
            )
        sent_at_once = int(self._config.kafka.get("batch.size", _SENT_AT_ONCE_BYTES))
        if topic.largest_record_bytes < sent_at_once:
            raise OutputTopicError(
                f"topic {topic.name} takes requests of up to {topic.largest_record_bytes} bytes, but the client "
                f"sends {sent_at_once} at once; raise the topic's max.message.bytes, or lower kafka['batch.size']"
            )
        self._known[topic.name] = topic
        largest = min(topic.largest_record_bytes, changelog.largest_record_bytes) - RECORD_OVERHEAD_BYTES
        needs_key = "compact" in topic.settings["cleanup.policy"]
        return replace(output, largest_record_bytes=largest, needs_key=needs_key)
