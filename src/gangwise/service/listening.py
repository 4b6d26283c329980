"""The process of the API: apart from the scheduler's, which it can neither stop nor slow down.

It reads the service's files and writes requests; the two share nothing else. A client gets
a limited time for a request and one connection of a limited number: where these are used up, the
connection that has waited longest without a request is cut, so that idle ones keep no other out. It
ends when the service does, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangwise.core.errors import ScenarioError, to_install
from gangwise.service.state import is_loopback, read_tokens

if TYPE_CHECKING:
    import uvicorn

CONNECTIONS = 200  # connections at once
HEADERS = 10.0  # seconds for the head of a request, from the connection or the answer before
REQUEST = 30.0  # seconds for the rest of it, and for taking the answer


# In the service


def require_packages() -> None:
    """ScenarioError where a package that the API needs is not installed."""
    for needed in ("fastapi", "uvicorn", "prometheus_client"):
        if find_spec(needed) is None:
            raise ScenarioError(f"--http needs {needed}; {to_install('live')}")


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens there; raises ScenarioError where another does."""
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(128)  # connections that come at once wait
    except OSError as error:
        opened.close()
        text = f"cannot listen on {host}:{port}: {error.strerror}; give another port"
        raise ScenarioError(text) from error
    return opened


class Listening:
    """The process of the API of a service in this process, until it is closed.

    Raises ScenarioError when it cannot listen there, or may not (beyond this host, without tokens),
    or a package that it needs is missing.
    """

    def __init__(self, folder: Path | str, host: str, port: int, tokens: Path | None = None):
        require_packages()
        roles = read_tokens(tokens) if tokens is not None else {}
        if not is_loopback(host) and not roles:
            raise ScenarioError(f"--http {host}:{port}: beyond this host, give --tokens as well")
        # Opened here: a port that is taken is an error of the start, and while the process of the
        # API is started again connections wait in the socket.
        self._socket = listening_socket(host, port)
        self.port = int(self._socket.getsockname()[1])
        number = str(self._socket.fileno())
        self._command = [sys.executable, "-m", __name__, str(folder), host, number]
        if tokens is not None:
            self._command.append(str(tokens))
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._began = time.monotonic()
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # it ends when this is let go of, not by signals of a terminal
            start_new_session=True,
            pass_fds=[self._socket.fileno()],
        )

    def revive(self) -> bool:
        """Start it again where it has ended by itself, though not at once."""
        if self.process.poll() is None or time.monotonic() < self._began + 5.0:
            return False
        self._let_go()
        self.process = self._start()
        return True

    def _let_go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        self._let_go()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._socket.close()


# In its own process


def server(app: Any) -> uvicorn.Server:
    """A server of an application, with limits on connections and time."""
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Limited(H11Protocol):
        """HTTP/1.1 to a client that may be silent, slow, or one of too many."""

        _timer: asyncio.TimerHandle | None = None
        _since = 0.0

        @property
        def _works(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _arm(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._since = self.loop.time()
            seconds = REQUEST if self._works else HEADERS
            # abort waits for nothing that a silent client would have to take.
            self._timer = self.loop.call_later(seconds, self.transport.abort)

        # As in uvicorn, whose protocol narrows the type that asyncio's has.
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._arm()
            if len(self.connections) > CONNECTIONS:
                # The new one is idle, too, so that there is always one; where
                # all others work, it goes.
                limited = [c for c in self.connections if isinstance(c, Limited)]
                idle = [c for c in limited if not c._works and not c.transport.is_closing()]
                # The one that is idle for longest: a client that asks now and then keeps its
                # connection.
                min(idle, key=lambda c: c._since).transport.abort()

        def data_received(self, data: bytes) -> None:
            worked = self._works
            super().data_received(data)
            if self._works and not worked:
                self._arm()

        def send_400_response(self, msg: str) -> None:
            """Answer what is no HTTP, in place of the application if it works at the head."""
            if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                self.transport.abort()  # it has an answer already, or a part of one
                return
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            super().send_400_response(msg)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.transport.is_closing():
                self._arm()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            super().connection_lost(exc)

    config = uvicorn.Config(
        app,
        http=Limited,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def main(folder: str, host: str, number: str, tokens: str = "") -> None:
    """Serve on a socket that was handed over, until the service closes our input."""
    from gangwise.service.api import create_app
    from gangwise.service.state import ServiceState

    os.nice(5)  # the scheduler first
    roles = read_tokens(tokens) if tokens else {}
    serving = server(create_app(ServiceState(folder), roles, host=host))

    def until_let_go() -> None:
        sys.stdin.buffer.read()
        serving.should_exit = True
        # Longer than the 2 s for open requests, shorter than the 5 s after which ``close`` kills.
        time.sleep(4.0)
        os._exit(1)

    threading.Thread(target=until_let_go, daemon=True).start()
    serving.run(sockets=[socket.socket(fileno=int(number))])


if __name__ == "__main__":
    main(*sys.argv[1:])
