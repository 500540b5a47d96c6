"""A Maven repository on localhost that passes requests on to the real one.

Ivy could ask the real one itself, but then it would need Java's trust store and Java's proxy settings.
Python's follow the system and the usual environment variables, so whatever lets pip download also lets Ivy.
"""

from __future__ import annotations

import functools
import http.client
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["ForwardingRepository", "forwarding_repository"]

log = logging.getLogger(__name__)

_ATTEMPTS = 4
_TIMEOUT_SECONDS = 60.0

_Answer = tuple[int, bytes]


@dataclass
class ForwardingRepository:
    """Where the repository listens, and what could not be read from upstream (Ivy only reports a 502)."""

    url: str
    failures: list[str]


@contextmanager
def forwarding_repository(upstream: str) -> Iterator[ForwardingRepository]:
    """Serve on localhost what ``upstream`` has."""
    failures: list[str] = []
    # One context for all requests: loading the system's certificates takes longer than a small request.
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=ssl.create_default_context()))

    # Ivy asks for the head of each file up to three times before it reads it. Remembering the answers (about
    # 60 MB in all) makes that one request upstream, and the whole fetch twice as fast.
    @functools.cache
    def read(path: str) -> _Answer:
        return _read(opener, upstream.rstrip("/") + path, failures)

    class Handler(_ForwardingHandler):
        read_upstream = staticmethod(read)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="maven-forwarder", daemon=True)
    thread.start()
    try:
        yield ForwardingRepository(f"http://127.0.0.1:{server.server_address[1]}/", failures)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _ForwardingHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps Ivy's connection open over its several hundred small requests
    disable_nagle_algorithm = True  # head and body are two writes; the second must not wait for an ACK
    read_upstream: Callable[[str], _Answer]

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        status, body = self.read_upstream(self.path)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)


def _read(opener: urllib.request.OpenerDirector, url: str, failures: list[str]) -> _Answer:
    # When one file has failed for good the fetch fails, so the others need no patience.
    attempts = 1 if failures else _ATTEMPTS
    for attempt in range(1, attempts + 1):
        try:
            with opener.open(url, timeout=_TIMEOUT_SECONDS) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            # "Not found" is an answer that Ivy asks for on purpose; only a failing server is asked again.
            if error.code < 500:
                return error.code, b""
            reason: Exception = error
        except (OSError, http.client.HTTPException) as error:
            reason = error
        log.debug("reading %s failed (attempt %d of %d): %s", url, attempt, attempts, reason)
        if attempt < attempts:
            time.sleep(0.5 * 2**attempt)
    failures.append(f"{url}: {reason}")
    return http.client.BAD_GATEWAY, b""
