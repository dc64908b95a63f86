"""What a client sends on its data connection: one request, and the ends of leases."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
import weakref
from collections import deque

from .wire import MAX_FREES, Kind, encode_free_list, frame

_COALESCE_SECONDS = 0.001  # frees closer together than this share a message
_SEND_SECONDS = 1.0

_outboxes: weakref.WeakSet[Outbox] = weakref.WeakSet()


def _abandon_after_fork() -> None:
    """In a forked child: the connections are the parent's; this process only lets go of them."""
    for outbox in list(_outboxes):
        outbox.abandon()


os.register_at_fork(after_in_child=_abandon_after_fork)


class Outbox:
    """Owns the socket, since it outlives the reading: it is closed when every lease has ended.

    Leases may end on any thread, also inside a garbage collection in the middle of a send.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._frees: deque[tuple[int, ...]] = deque()
        self._unsent = b""
        self._freed_at = 0.0
        self._lock = threading.Lock()
        self._finished = False
        self._released = 0
        self.is_dead = False
        self.free_tag = 0
        self.granted = 0
        """Leases that began; counted by the one thread that reads."""
        _outboxes.add(self)

    @property
    def outstanding(self) -> int:
        """Leases that have not ended."""
        return self.granted - self._released

    def send(self, message: bytes) -> bool:
        """Sends a frame; False when the server does not take it."""
        with self._lock:
            self._unsent += message
            return self._send()

    def free(self, addresses: tuple[int, ...]) -> None:
        """Ends a lease. Never raises: a server that is gone needs no telling."""
        if self.is_dead:
            return
        self._frees.append(addresses)
        now = time.monotonic()
        if self._finished or now - self._freed_at > _COALESCE_SECONDS:
            self._freed_at = now
            self.flush()

    def flush(self) -> None:
        """Sends the frees that still wait."""
        # Whoever holds the lock looks again after letting go of it, so that no free is left
        # behind and a free that a garbage collection makes in the middle of this does no harm.
        while self._frees or self._unsent:
            if not self._lock.acquire(blocking=False):
                return
            try:
                self._collect()
                if not self._send():
                    break
            finally:
                self._lock.release()
        self._close_when_idle()

    def _collect(self) -> None:
        addresses: list[int] = []
        while self._frees and len(addresses) < MAX_FREES:
            addresses += self._frees.popleft()
            self._released += 1
        parts = [self._unsent]
        for i in range(0, len(addresses), MAX_FREES):
            payload = encode_free_list(addresses[i : i + MAX_FREES])
            parts.append(frame(Kind.TAGGED, payload, self.free_tag))
        self._unsent = b"".join(parts)

    def _send(self) -> bool:
        deadline = time.monotonic() + _SEND_SECONDS
        while self._unsent and not self.is_dead:
            try:
                sent = self._socket.send(self._unsent, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                self._unsent = self._unsent[sent:]
            except BlockingIOError:
                poller = select.poll()
                poller.register(self._socket, select.POLLOUT)
                if not poller.poll(max(0, int((deadline - time.monotonic()) * 1000))):
                    return False
            except OSError:
                self._unsent = b""
                self.is_dead = True
        return not self.is_dead

    def finish(self, cancel: bool) -> None:
        """No more is read. With ``cancel`` the server's next send fails; frees still go."""
        self._finished = True
        if cancel and not self.is_dead:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)
        self.flush()

    def _close_when_idle(self) -> None:
        if not self._finished or not self._lock.acquire(blocking=False):
            return
        try:
            idle = self._released == self.granted and not self._frees and not self._unsent
            if idle or self.is_dead:
                self.is_dead = True
                self._socket.close()
        finally:
            self._lock.release()

    def kill(self) -> None:
        """Closes at once; the server takes all leases back."""
        self.is_dead = self._finished = True
        self._socket.close()

    def abandon(self) -> None:
        """After a fork, in the child, where whoever held the lock no longer exists."""
        self._lock = threading.Lock()
        self.is_dead = True
        self._frees.clear()
        self._socket.close()
