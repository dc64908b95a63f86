"""Accepting data connections and reading from all of them."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import selectors
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, Optional

from .._channel import boot_id
from ..errors import Code, DissociatedError
from ..wire import DissociatedUri, Hello, Kind, encode_error, frame
from ._connection import Connection

HEARTBEAT_SECONDS = 1.0
REQUEST_SECONDS = 30.0
_BACKLOG = 256
_TICK_SECONDS = 0.25


class Listener:
    """A Unix socket and the one thread that reads all its connections."""

    def __init__(
        self,
        path: Optional[str],
        allow_uids: frozenset[int],
        lease_limit: int,
        claim: Callable[[Connection, bytes], None],
        ended: Callable[[Connection], None],
    ) -> None:
        self._folder: Optional[str] = None
        if path is None:
            self._folder = tempfile.mkdtemp(prefix="dissociated-")  # 0700
            path = os.path.join(self._folder, "socket")
        self.path = os.path.abspath(path)
        self._allow_uids = allow_uids
        self._lease_limit = lease_limit
        self._claim = claim
        self._ended = ended
        self.hello = Hello(
            secrets.token_bytes(16),
            secrets.token_bytes(16),
            secrets.randbits(56),
            secrets.randbits(56) | 1 << 60,
            int(HEARTBEAT_SECONDS * 1000),
        )
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()
        self._closing = False
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._socket = _listen(self.path)
        except BaseException:
            self._clean()
            raise
        self._thread = threading.Thread(target=self._run, name="dissociated-poller", daemon=True)
        self._thread.start()

    @property
    def location(self) -> str:
        """Where clients of this host find this server."""
        uri = DissociatedUri("shm", "", self.path)
        uri = uri.with_parameter("want_data", str(self.hello.want_data))
        uri = uri.with_parameter("free_data", str(self.hello.free_data))
        uri = uri.with_remote_handle(self.hello.segment_set)
        return str(uri.with_parameter("host", self.hello.host(boot_id())))

    @property
    def connections(self) -> list[Connection]:
        """The connections of just now."""
        with self._lock:
            return list(self._connections)

    # ---- the poller

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ, None)
            selector.register(self._wake_in, selectors.EVENT_READ, None)
            while not self._closing:
                for key, _ in selector.select(_TICK_SECONDS):
                    if key.data is not None:
                        self._read(selector, key.data)
                    elif key.fileobj is self._socket:
                        self._accept(selector)
                self._beat(selector)
            for connection in self.connections:
                self._end(selector, connection)

    def _accept(self, selector: Any) -> None:
        try:
            accepted, _ = self._socket.accept()
        except OSError:
            # Out of descriptors, or the client has gone again: others must not suffer.
            time.sleep(0.01)
            return
        try:
            tags = (self.hello.want_data, self.hello.free_data)
            connection = Connection(accepted, tags, self._claim, self._lease_limit)
        except OSError:
            accepted.close()
            return
        if connection.uid not in self._allow_uids:
            error = encode_error(Code.PERMISSION_DENIED, f"user refused, uid={connection.uid}")
            with contextlib.suppress(OSError):
                accepted.send(frame(Kind.ERROR, error))
            accepted.close()
            return
        with self._lock:
            self._connections.add(connection)
        selector.register(connection, selectors.EVENT_READ, connection)
        with contextlib.suppress(DissociatedError):
            connection.send([frame(Kind.HELLO, self.hello.encode())])

    def _read(self, selector: Any, connection: Connection) -> None:
        try:
            alive = connection.receive()
        except DissociatedError as e:
            self._refuse(selector, connection, e)
            return
        if not alive:
            self._end(selector, connection)

    def _refuse(self, selector: Any, connection: Connection, error: DissociatedError) -> None:
        connection.refuse(error)
        self._end(selector, connection)

    def _end(self, selector: Any, connection: Connection) -> None:
        selector.unregister(connection)
        with self._lock:
            self._connections.discard(connection)
        connection.close()
        self._ended(connection)

    def _beat(self, selector: Any) -> None:
        now = time.monotonic()
        for connection in self.connections:
            if now - connection.last_sent >= HEARTBEAT_SECONDS:
                connection.beat()
            if not connection.claimed and now - connection.accepted > REQUEST_SECONDS:
                error = DissociatedError(Code.TIMED_OUT, "connection refused: nothing was asked")
                self._refuse(selector, connection, error)

    # ---- the end

    def close(self) -> None:
        """Ends all connections and removes the socket."""
        if self._closing:
            return
        self._closing = True
        os.write(self._wake_out, b"\0")
        self._thread.join()
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)
        self._clean()

    def _clean(self) -> None:
        os.close(self._wake_in)
        os.close(self._wake_out)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                os.rmdir(self._folder)


def _listen(path: str) -> socket.socket:
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The mode of the socket becomes that of its file: there is no moment with a wider one.
        os.fchmod(listening.fileno(), 0o600)
        listening.bind(path)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
        return listening
    except OSError as e:
        listening.close()
        code = Code.INVALID_ARGUMENT if "too long" in str(e) else Code.UNAVAILABLE
        raise DissociatedError(code, f"cannot listen: {e.strerror or e}, socket={path}") from e


def _remove_stale(path: str) -> None:
    """Removes the socket of a server that is dead; refuses to take a live one's place."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise DissociatedError(
                Code.UNAVAILABLE, f"cannot listen: something else is there, socket={path}"
            )
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError as e:
            if e.errno == errno.ECONNREFUSED:
                os.unlink(path)
                return
    raise DissociatedError(
        Code.UNAVAILABLE, f"cannot listen: another server is there, socket={path}"
    )
