"""What an agent can be asked for: an Arrow Flight server, behind each of its doors.

Actions carry JSON and are for drivers and tools; one exchange per task attempt carries its reads and writes, and one
its look-ups in each global table.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow.flight as flight

from changelog_state.agent.batch_desk import OpenBatch
from changelog_state.agent.lookups import serve_lookups
from changelog_state.agent.messages import to_flight_error
from changelog_state.agent.presence import Presence
from changelog_state.agent.registry import Registry
from changelog_state.agent.task_serving import serve_task
from changelog_state.changelog.record import StoreIdentity
from changelog_state.config import StoreConfig, TableConfig
from changelog_state.errors import ChangelogStateError
from changelog_state.requests import LookupRequest, RequestHeader, decode_request

__all__ = ["AgentServer"]

logger = logging.getLogger(__name__)

_ORPHAN_SECONDS = 60.0
_WATCH_SECONDS = 2.0


class AgentServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves from when it is made until it is shut down."""

    def __init__(
        self, registry: Registry, address: str, presence: Presence | None = None, **flight_options: Any
    ) -> None:
        self._registry = registry
        self.address = address
        self.presence = presence or Presence(registry, address, address, registry.host)
        self.on_stop: Callable[[], None] = self.shutdown
        """Called in a thread of its own when somebody asks the agent to stop."""
        self._actions: dict[str, Callable[[dict[str, Any]], Any]] = {
            "hello": self._hello,
            "status": lambda body: registry.statuses(_config(body)),
            "pulse": self._pulse,
            "claim": self._claim,
            "follow": self._follow,
            "open_batch": self._open_batch,
            "commit": self._commit,
            "close_batch": lambda body: registry.close_batch(_config(body), body["token"]),
            "clear": lambda body: registry.clear(_config(body), body["epoch"], body["partitions"]),
            "release": lambda body: registry.release(_config(body)),
            "read": self._read,
            "scan": self._scan,
            "drain": self._drain,
            "summary": lambda body: registry.summary(),
            "stop": self._stop,
        }
        super().__init__(address, **flight_options)

    def describe(self) -> dict[str, Any]:
        return self.presence.describe()

    # -- Flight ------------------------------------------------------------------------------------------

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [(name, "") for name in self._actions]

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        try:
            handler = self._actions.get(action.type)
            if handler is None:
                raise flight.FlightServerError(f"unknown action {action.type!r}")
            body = json.loads(action.body.to_pybytes() or b"{}")
            return iter([json.dumps(handler(body)).encode()])
        except flight.FlightError:
            raise
        except Exception as error:
            expected = isinstance(error, ChangelogStateError)
            logger.log(
                logging.INFO if expected else logging.ERROR,
                "%s failed: %s",
                action.type,
                error,
                exc_info=not expected,
            )
            raise to_flight_error(error) from error

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """One task attempt, or its look-ups in a global table."""
        try:
            request = decode_request(descriptor.command)
            if isinstance(request, LookupRequest):
                serve_lookups(self._registry.tables, request, reader, writer)
            else:
                serve_task(self._registry.partition(request), request, reader, writer)
        except flight.FlightError:
            raise
        except Exception as error:
            raise to_flight_error(error) from error

    # -- actions -----------------------------------------------------------------------------------------

    def _hello(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("driver"):
            self._registry.drivers.heard(body["driver"])
        return self.describe()

    def _pulse(self, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "agent": self._hello(body),
            "partitions": self._registry.statuses(_config(body)),
            "tables": self._tables(body),
        }

    def _claim(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        return self._registry.claim(
            _config(body),
            StoreIdentity(**body["identity"]),
            body["epoch"],
            body["partitions"],
            body["wait_seconds"],
            body["restore_memory_mb"],
            _by_partition(body["above"]),
        )

    def _follow(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        return self._registry.follow(
            _config(body),
            body["epoch"],
            body["partitions"],
            _by_partition(body["known_claims"]),
            body["restore_memory_mb"],
        )

    def _open_batch(self, body: dict[str, Any]) -> dict[str, Any]:
        driver = self._registry.drivers.heard(body["driver"])
        batch = OpenBatch(body["query"], body["batch"], body["epoch"], body["token"], driver, body["asked"])
        partitions = self._registry.open_batch(_config(body), batch, body["partitions"])
        return {"partitions": partitions, "tables": self._tables(body)}

    def _tables(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The application's global tables here; those that the caller needs are followed from now on."""
        tables, asker = self._registry.tables, body.get("asker")
        if asker is not None:
            tables.follow(map(TableConfig.from_json, body["tables"]), asker)
        return tables.statuses(_config(body).application, asker)

    def _commit(self, body: dict[str, Any]) -> dict[str, Any]:
        header = RequestHeader(**body["header"])
        return self._registry.partition(header).commit(header, body["stage_id"], bytes.fromhex(body["mutations"]))

    def _read(self, body: dict[str, Any]) -> dict[str, Any]:
        config, partition = _config(body), body["partition"]
        keys = [_bytes(key) for key in body["keys"]]
        lag = self._registry.lag(config, partition)
        found = self._registry.read(config, partition, keys, body["stale_ok"])
        return {"values": [None if value is None else _text(value) for value in found], **lag}

    def _scan(self, body: dict[str, Any]) -> dict[str, Any]:
        config, partition = _config(body), body["partition"]
        end = None if body["end"] is None else _bytes(body["end"])
        lag = self._registry.lag(config, partition)
        found = self._registry.scan(config, partition, _bytes(body["start"]), end, body["limit"], body["stale_ok"])
        return {"entries": [(_text(key), _text(value)) for key, value in found], **lag}

    def _drain(self, body: dict[str, Any]) -> dict[str, Any]:
        self._registry.drain(bool(body["draining"]))
        return self._registry.summary()

    def _stop(self, body: dict[str, Any]) -> None:
        # From another thread: shutdown waits for calls under way, and this is one of them.
        threading.Thread(target=self.on_stop, name="stop").start()

    def watch_drivers(self) -> None:
        """Stop when every driver that ever said hello has been gone for a while."""
        gone_since: float | None = None
        while True:
            time.sleep(_WATCH_SECONDS)
            if self._registry.drivers.any_alive():
                gone_since = None
            elif gone_since is None:
                gone_since = time.monotonic()
            elif time.monotonic() - gone_since > _ORPHAN_SECONDS:
                logger.info("no driver has been here for %.0f s: stopping", _ORPHAN_SECONDS)
                self.on_stop()
                return


def _config(body: dict[str, Any]) -> StoreConfig:
    return StoreConfig.from_json(body["config"])


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _by_partition(plain: dict[str, int]) -> dict[int, int]:
    """JSON makes text of numbers that are keys."""
    return {int(number): value for number, value in plain.items()}
