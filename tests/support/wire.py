"""A stretch of network between an agent and everybody else, which can be cut without either side being told."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Wire:
    """Forwards a port. Cut, it takes what it is given and passes nothing on, as a network does that drops packets."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._whole = threading.Event()
        self._whole.set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self._closed = True
        self._whole.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._forward, args=(caller,), daemon=True).start()

    def _forward(self, caller: socket.socket) -> None:
        self._whole.wait()
        with (
            contextlib.suppress(OSError),
            caller,
            socket.create_connection(("127.0.0.1", self._target_port)) as agent,
        ):
            ends = selectors.DefaultSelector()
            ends.register(caller, selectors.EVENT_READ, agent)
            ends.register(agent, selectors.EVENT_READ, caller)
            while not self._closed:
                for key, _ in ends.select(0.1):
                    data = key.fileobj.recv(65_536)  # type: ignore[union-attr]
                    if not data:
                        return
                    self._whole.wait()
                    key.data.sendall(data)
