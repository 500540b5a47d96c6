"""Calling an agent from a driver or a tool."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from changelog_state.agent.drivers import this_process
from changelog_state.agent.messages import from_flight_error
from changelog_state.agent.transport import call_options, connect
from changelog_state.changelog.record import StoreIdentity
from changelog_state.config import DEFAULT_RESTORE_MEMORY_MB, StoreConfig, TableConfig
from changelog_state.requests import RequestHeader

__all__ = ["PULSE_SECONDS", "AgentClient"]

_QUICK_SECONDS = 10.0
PULSE_SECONDS = 1.5
"""An agent that does not answer within this time is taken for lost: it is asked for nothing but to answer."""
_COMMIT_SECONDS = 300.0
_READ_SECONDS = 120.0


class AgentClient:
    def __init__(self, address: str) -> None:
        self.address = address
        self._client = connect(address)

    def hello(self, *, as_driver: bool = False, timeout_seconds: float = _QUICK_SECONDS) -> dict[str, Any]:
        body = {"driver": this_process()} if as_driver else {}
        return self._call("hello", body, timeout_seconds)  # type: ignore[no-any-return]

    def check(self) -> None:
        """Raise if it does not answer at once."""
        self._call("hello", {}, PULSE_SECONDS)

    def pulse(
        self,
        config: StoreConfig,
        *,
        as_driver: bool = True,
        tables: Iterable[TableConfig] = (),
        asker: str | None = None,
    ) -> dict[str, Any]:
        """The agent, what it has of a store and of global tables; as a driver, it has to answer at
        once, and hears who asks.

        ``tables``: what ``asker`` needs, followed from now on.
        """
        body = _about(config) | ({"driver": this_process()} if as_driver else {}) | _needing(tables, asker)
        seconds = PULSE_SECONDS if as_driver else _QUICK_SECONDS
        return self._call("pulse", body, seconds)  # type: ignore[no-any-return]

    def status(self, config: StoreConfig) -> list[dict[str, Any]]:
        return self._call("status", _about(config), _QUICK_SECONDS)  # type: ignore[no-any-return]

    def claim(
        self,
        config: StoreConfig,
        identity: StoreIdentity,
        epoch: int,
        partitions: Iterable[int],
        wait_seconds: float,
        restore_memory_mb: int = DEFAULT_RESTORE_MEMORY_MB,
        above: Mapping[int, int] | None = None,
    ) -> list[dict[str, Any]]:
        """``above``: the highest claim known of each; who holds a lower one must claim anew."""
        body = _about(config) | {
            "identity": vars(identity),
            "above": dict(above or {}),
            "epoch": epoch,
            "partitions": list(partitions),
            "wait_seconds": wait_seconds,
            "restore_memory_mb": restore_memory_mb,
        }
        return self._call("claim", body, wait_seconds + 60.0)  # type: ignore[no-any-return]

    def follow(
        self,
        config: StoreConfig,
        epoch: int,
        partitions: Iterable[int],
        known_claims: Mapping[int, int],
        restore_memory_mb: int = DEFAULT_RESTORE_MEMORY_MB,
    ) -> list[dict[str, Any]]:
        """Keep hot replicas of these partitions, and of no others."""
        body = _about(config) | {
            "epoch": epoch,
            "partitions": list(partitions),
            "known_claims": dict(known_claims),
            "restore_memory_mb": restore_memory_mb,
        }
        return self._call("follow", body, _QUICK_SECONDS)  # type: ignore[no-any-return]

    def open_batch(
        self,
        config: StoreConfig,
        query: str,
        batch: int,
        epoch: int,
        token: str,
        partitions: Iterable[int],
        tables: Iterable[TableConfig] = (),
        asker: str | None = None,
    ) -> dict[str, Any]:
        """What it has then: ``partitions`` and ``tables``."""
        body = _about(config) | _needing(tables, asker)
        body |= {
            "query": query,
            "batch": batch,
            "epoch": epoch,
            "token": token,
            "asked": time.monotonic_ns(),
            "driver": this_process(),
            "partitions": list(partitions),
        }
        return self._call("open_batch", body, _QUICK_SECONDS)  # type: ignore[no-any-return]

    def commit(self, header: RequestHeader, stage_id: str | None, mutations: bytes) -> dict[str, Any]:
        body = {"header": vars(header), "stage_id": stage_id, "mutations": mutations.hex()}
        return self._call("commit", body, _COMMIT_SECONDS)  # type: ignore[no-any-return]

    def close_batch(self, config: StoreConfig, token: str) -> None:
        self._call("close_batch", _about(config) | {"token": token}, _QUICK_SECONDS)

    def clear(self, config: StoreConfig, epoch: int, partitions: Iterable[int]) -> int:
        body = _about(config) | {"epoch": epoch, "partitions": list(partitions)}
        return self._call("clear", body, _COMMIT_SECONDS)  # type: ignore[no-any-return]

    def release(self, config: StoreConfig) -> None:
        self._call("release", _about(config), _COMMIT_SECONDS)

    def read(self, config: StoreConfig, partition: int, keys: list[bytes]) -> list[bytes | None]:
        return self.read_with_lag(config, partition, keys, stale_ok=False)[0]

    def read_with_lag(
        self, config: StoreConfig, partition: int, keys: list[bytes], *, stale_ok: bool
    ) -> tuple[list[bytes | None], dict[str, Any]]:
        """Values, and how far behind the log they may be."""
        body = _about(config) | {"partition": partition, "keys": [_text(key) for key in keys], "stale_ok": stale_ok}
        answer = self._call("read", body, _READ_SECONDS)
        values = [None if value is None else base64.b64decode(value) for value in answer.pop("values")]
        return values, answer

    def scan(
        self,
        config: StoreConfig,
        partition: int,
        start: bytes,
        end: bytes | None,
        limit: int,
        *,
        stale_ok: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        body = _about(config) | {
            "partition": partition,
            "start": _text(start),
            "end": None if end is None else _text(end),
            "limit": limit,
            "stale_ok": stale_ok,
        }
        found = self._call("scan", body, _READ_SECONDS)["entries"]
        return [(base64.b64decode(key), base64.b64decode(value)) for key, value in found]

    def drain(self, *, undo: bool = False) -> dict[str, Any]:
        """Have the agent give away what it owns, or end that; answers as ``summary`` does."""
        return self._call("drain", {"draining": not undo}, _QUICK_SECONDS)  # type: ignore[no-any-return]

    def summary(self) -> dict[str, Any]:
        return self._call("summary", {}, _QUICK_SECONDS)  # type: ignore[no-any-return]

    def stop(self) -> None:
        self._call("stop", {}, _QUICK_SECONDS)

    def close(self) -> None:
        self._client.close()

    def _call(self, action: str, body: dict[str, Any], timeout_seconds: float) -> Any:
        options = call_options(self.address, timeout_seconds)
        try:
            results = list(self._client.do_action(flight.Action(action, json.dumps(body).encode()), options=options))
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            raise from_flight_error(error, self.address) from error
        return json.loads(results[0].body.to_pybytes())


def _about(config: StoreConfig) -> dict[str, Any]:
    return {"config": config.to_json()}


def _needing(tables: Iterable[TableConfig], asker: str | None) -> dict[str, Any]:
    return {} if asker is None else {"tables": [table.to_json() for table in tables], "asker": asker}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
