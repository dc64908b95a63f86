"""The server's end of a data connection."""

from __future__ import annotations

import array
import contextlib
import datetime
import itertools
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Optional

from .._segments import close_all
from ..errors import Code, DissociatedError, violation
from ..wire import (
    FRAME_HEADER,
    HEADER_LENGTH,
    Kind,
    Summary,
    check_header,
    encode_error,
    frame,
    parse_free_list,
    segment_frame,
)
from ._leases import LeaseTable
from ._memory import Block, Pool, ServedSegment

_MAX_REQUEST = 1 << 20  # payload of any message from a client
_RECEIVE_SIZE = 256 << 10
_POLL_SECONDS = 0.5
_SHORT_SECONDS = 0.005  # longer than a send that need not wait
_MOST_PARTS = 512  # IOV_MAX is 1024
_INTS = array.array("i").itemsize
_ANCILLARY = socket.CMSG_SPACE(8 * _INTS)


_ids = itertools.count(1)


class Connection:
    """Sends to one client and keeps its leases.

    The listener's poller reads it; one producer sends. Sending blocks while the client does not
    read, so that a slow consumer slows its producer, and fails when it is gone.
    """

    def __init__(
        self,
        connected: socket.socket,
        tags: tuple[int, int],
        claim: Callable[[Connection, bytes], None],
        lease_limit: int,
    ) -> None:
        self._socket = connected
        self._socket.setblocking(False)
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid, self.uid, _ = struct.unpack("3i", credentials)
        self._want_data, self._free_data = tags
        self._claim = claim
        self._buffer = bytearray()
        self._lock = threading.Lock()
        """Held while sending, and to close the socket: its number may be another's at once."""
        self._is_waiting = False
        self._is_cut = False
        self._is_refused = False
        self._announced: set[int] = set()
        self.claimed = False
        self.pool: Optional[Pool] = None
        self.leases = LeaseTable(self._release, lease_limit)
        self.identity = ""
        self.stream = ""
        self.metadata = "inline"
        self.state = "awaiting_request"
        self.sent = Summary(0, 0, 0)
        self.id = next(_ids)
        self.since = time.time()
        self.last_sent = self.accepted = time.monotonic()
        self.is_closed = False
        self.wants_no_more = False
        self.error: Optional[DissociatedError] = None

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def _release(self, block: Block) -> None:
        if self.pool is not None:
            self.pool.release(block)

    # ---- sending

    def send(self, parts: Iterable[Any]) -> None:
        """Sends all parts, waiting as long as the client lives."""
        views = [view for view in (memoryview(p).cast("B") for p in parts) if len(view)]
        with self._lock:
            self._send(views)

    def _send(self, views: list[memoryview]) -> None:
        first = 0
        while first < len(views):
            self._check()
            try:
                sent = self._socket.sendmsg(
                    views[first : first + _MOST_PARTS], [], socket.MSG_NOSIGNAL
                )
            except BlockingIOError:
                self._wait_writable()
                continue
            except OSError as e:
                raise self._no_more(e) from e
            self._is_cut = True
            while sent:
                view = views[first]
                if sent < len(view):
                    views[first] = view[sent:]
                    break
                sent -= len(view)
                first += 1
        self._is_cut = False
        self.last_sent = time.monotonic()

    def _wait_writable(self) -> None:
        poller = select.poll()
        self._is_waiting = True
        with contextlib.suppress(OSError, ValueError):
            poller.register(self._socket, select.POLLOUT)
            poller.poll(int(_POLL_SECONDS * 1000))
        self._is_waiting = False

    def _check(self) -> None:
        if self.is_closed or self.wants_no_more:
            raise self.error or DissociatedError(Code.CANCELLED, "the client wants no more")

    def _no_more(self, error: OSError) -> DissociatedError:
        """The client reads no more; what it holds it keeps until its connection ends."""
        self.wants_no_more = True
        return DissociatedError(Code.CANCELLED, f"the client wants no more: {error.strerror}")

    def announce(self, segment: ServedSegment) -> None:
        """Shows a segment to the client, once."""
        if segment.id in self._announced:
            return
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [segment.descriptor]))]
        message = segment_frame(segment.id, segment.size)
        with self._lock:
            while True:
                self._check()
                try:
                    sent = self._socket.sendmsg([message], rights, socket.MSG_NOSIGNAL)
                    break
                except BlockingIOError:
                    self._wait_writable()
                except OSError as e:
                    raise self._no_more(e) from e
            self._announced.add(segment.id)
            self._is_cut = True
            self._send([memoryview(message)[sent:]] if sent < len(message) else [])

    def beat(self) -> None:
        """Sends a heartbeat, unless something else is being sent or there is no room."""
        if self._lock.acquire(blocking=False):
            try:
                self._socket.send(frame(Kind.HEARTBEAT), socket.MSG_NOSIGNAL)
                self.last_sent = time.monotonic()
            except OSError:
                pass  # the poller notices
            finally:
                self._lock.release()

    def refuse(self, error: DissociatedError) -> None:
        """Tells the client why, as the last that it hears. Only for the poller, which closes then.

        A client is not told when its socket has no room or a frame was left in the middle.
        """
        self.error = self.error or error
        self._is_refused = True
        self.wants_no_more = True  # the producer ends after the send that it is in
        while not self._lock.acquire(timeout=_SHORT_SECONDS):
            if self._is_waiting:
                return
        try:
            if not self._is_cut:
                self._socket.send(
                    frame(Kind.ERROR, encode_error(error.code, error.message)), socket.MSG_NOSIGNAL
                )
        except OSError:
            pass  # no room, or nobody is there any more
        finally:
            self._lock.release()

    def fail(self, error: DissociatedError) -> None:
        """Tells the client why and closes."""
        with contextlib.suppress(DissociatedError):
            self.send([frame(Kind.ERROR, encode_error(error.code, error.message))])
        self.shutdown(error)

    def shutdown(self, error: Optional[DissociatedError] = None) -> None:
        """Ends the connection; the poller closes it."""
        self.error = self.error or error
        self.wants_no_more = True
        if not self._is_refused:  # the poller still says why, and closes
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)

    # ---- receiving, by the poller

    def receive(self) -> bool:
        """Reads and handles what has come; False when the connection is over."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(
                _RECEIVE_SIZE, _ANCILLARY, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return True
        except OSError:
            return False
        if ancillary:
            _refuse(ancillary)
        if not data:
            return False
        self._buffer += data
        self._dispatch()
        return True

    def _dispatch(self) -> None:
        buffer, position = self._buffer, 0
        while len(buffer) - position >= HEADER_LENGTH:
            length, tag, kind = FRAME_HEADER.unpack_from(buffer, position)
            known = check_header(length, tag, kind)
            if length > _MAX_REQUEST:
                raise violation(f"frame refused: too long, kind={known.name} length={length}")
            stop = position + HEADER_LENGTH + length
            if stop > len(buffer):
                break
            payload = bytes(buffer[position + HEADER_LENGTH : stop])
            position = stop
            if known is Kind.TAGGED:
                self._tagged(tag, payload)
            elif known is Kind.ERROR:
                raise DissociatedError(Code.CANCELLED, "the client has failed")
            else:
                raise violation(f"frame refused: not for a server, kind={known.name}")
        del buffer[:position]

    def _tagged(self, tag: int, payload: bytes) -> None:
        if tag == self._free_data:
            self.leases.free(parse_free_list(payload))
        elif tag == self._want_data:
            if self.claimed:
                raise violation("want_data refused: one stream for each connection")
            self.claimed = True
            self._claim(self, payload)
        else:
            raise violation(f"message refused: unknown tag, tag={tag:#x}")

    def close(self) -> None:
        """The client is gone: its leases end. Only for the poller."""
        self.is_closed = True
        self.error = self.error or DissociatedError(Code.UNAVAILABLE, "the client is gone")
        self.leases.close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a producer that waits for room
        with self._lock:
            self._socket.close()

    def describe(self) -> dict[str, Any]:
        """This client's part of the statistics."""
        since = datetime.datetime.fromtimestamp(self.since, datetime.timezone.utc)
        return {
            "id": self.id,
            "name": self.stream,
            "client": f"uid {self.uid} pid {self.pid}",
            "user": str(self.uid),
            "pid": self.pid,
            "identity": self.identity,
            "metadata": self.metadata,
            "state": self.state,
            "since": since.isoformat().replace("+00:00", "Z"),
            "batches": self.sent.batches,
            "bytes": self.sent.body_bytes,
            "copied_bytes": self.sent.copied_bytes,
            "leases": self.leases.count,
            "leased_bytes": self.leases.bytes,
            "refused_frees": self.leases.refused,
        }


def _refuse(ancillary: list[Any]) -> None:
    """A client never sends descriptors."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            received = array.array("i")
            received.frombytes(data[: len(data) - len(data) % _INTS])
            close_all(list(received))
    raise violation("frame refused: a client sends no descriptors")
