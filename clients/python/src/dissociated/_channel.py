"""The client's end of a data connection: a Unix socket that carries frames and descriptors."""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import struct
import time
from collections import deque
from typing import Any, Optional

import pyarrow as pa

from ._joiner import Joiner
from ._outbox import Outbox
from ._segments import SegmentTable, close_all
from .errors import Code, DissociatedError, violation
from .wire import (
    FRAME_HEADER,
    HEADER_LENGTH,
    MAX_SHORT_PAYLOAD,
    PACKED,
    DissociatedUri,
    Hello,
    Kind,
    Summary,
    body_type,
    check_header,
    frame,
    parse_error,
    parse_segment,
)

CONNECT_TIMEOUT = 5.0
SILENT_INTERVALS = 10
"""Heartbeat intervals without a byte after which a server counts as gone."""

_BUFFER_SIZE = 1 << 20
_DIRECT_SIZE = 64 << 10  # payloads from here on are received where they stay
_MAX_DESCRIPTORS = 4
_ANCILLARY = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
_FLAGS = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
_UNTAGGED, _TAGGED = int(Kind.UNTAGGED), int(Kind.TAGGED)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """What tells this boot of this host from all others."""
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def _unavailable(path: str, reason: object) -> DissociatedError:
    return DissociatedError(Code.UNAVAILABLE, f"cannot connect: {reason}, socket={path}")


class Channel:
    """One data connection; carries one stream.

    Receiving is for one thread at a time. Leases may end on any thread, also after :meth:`finish`:
    the :attr:`outbox` then keeps the connection until the last one has.
    """

    def __init__(self, path: str, location: Optional[DissociatedUri] = None) -> None:
        """Connects and checks that this is the server that ``location`` advertises."""
        self.joiner = Joiner()
        self.segments = SegmentTable()
        self.summary: Optional[Summary] = None
        self.last_heard = time.monotonic()
        self.path = path
        self._hello: Optional[Hello] = None
        self._buffer = bytearray(_BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._direct: Optional[tuple[int, int, Any, Any]] = None
        self._direct_done = 0
        self._descriptors: deque[int] = deque()
        self._finished = False
        self._socket = _connect(path)
        self.outbox = Outbox(self._socket)
        try:
            self._greet(location)
        except BaseException:
            self.kill()
            raise

    # ---- connecting

    def _greet(self, location: Optional[DissociatedUri]) -> None:
        peer = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, uid, _ = struct.unpack("3i", peer)
        self.is_foreign_user = uid not in (os.geteuid(), 0)
        deadline = time.monotonic() + CONNECT_TIMEOUT
        while self._hello is None:
            if not self.receive() and not self.wait(deadline - time.monotonic()):
                raise DissociatedError(
                    Code.TIMED_OUT, f"cannot connect: the server says nothing, socket={self.path}"
                )
        if location is not None:
            self._check(location, self._hello)

    def _check(self, location: DissociatedUri, hello: Hello) -> None:
        host = location.parameters.get("host")
        for what, wanted, actual in (
            ("host", host, hello.host(boot_id()) if host else host),
            ("remote_handle", location.remote_handle, hello.segment_set),
            ("want_data", location.want_data, hello.want_data),
            ("free_data", location.free_data, hello.free_data),
        ):
            if wanted is not None and wanted != actual:
                raise _unavailable(self.path, f"not the server that advertised ({what} differs)")

    @property
    def silence_limit(self) -> float:
        """Seconds without a byte after which the server counts as gone."""
        interval = self._hello.heartbeat_ms if self._hello else 1000
        return SILENT_INTERVALS * min(interval, 60_000) / 1000

    def fileno(self) -> int:
        """The socket's descriptor, readable when :meth:`receive` has something to read."""
        return self._socket.fileno()

    def wait(self, seconds: float) -> bool:
        """Waits until there is something to read."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(max(0, int(seconds * 1000) + 1)))

    # ---- sending

    def want(self, identifier: bytes) -> None:
        """Asks for the stream of that token or ticket."""
        assert self._hello is not None
        if not self.outbox.send(frame(Kind.TAGGED, identifier, self._hello.want_data)):
            raise DissociatedError(
                Code.UNAVAILABLE, f"stream cannot be asked for, socket={self.path}"
            )

    # ---- receiving

    def receive(self) -> bool:
        """Reads and dispatches what has arrived, without waiting; whether there was anything."""
        try:
            if self._direct is not None:
                return self._receive_direct()
            received = self._read(self._view[self._end :])
            if not received:
                return False
            self._end += received
            self._dispatch()
            if len(self._descriptors) > 1 or (self._descriptors and self._start == self._end):
                raise violation("frame refused: a descriptor came with no segment")
            return True
        except DissociatedError:
            self._drop_descriptors()
            raise

    def _read(self, into: memoryview) -> int:
        try:
            received, ancillary, flags, _ = self._socket.recvmsg_into([into], _ANCILLARY, _FLAGS)
        except BlockingIOError:
            return 0
        except OSError as e:
            if self.outbox.is_dead or e.errno == errno.EBADF:
                raise DissociatedError(Code.CANCELLED, "the reader is closed") from e
            raise self._gone(e.strerror) from e
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors = array.array("i")
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
                self._descriptors.extend(descriptors)
        if flags & socket.MSG_CTRUNC or len(self._descriptors) > _MAX_DESCRIPTORS:
            raise violation("frame refused: more descriptors than segments")
        if not received:
            raise self._gone("it closed the connection")
        self.last_heard = time.monotonic()
        return received

    def _gone(self, reason: Optional[str]) -> DissociatedError:
        return DissociatedError(
            Code.UNAVAILABLE,
            f"the server is gone: {reason}, socket={self.path} {self.joiner.missing()}",
        )

    def _dispatch(self) -> None:
        """Handles every whole frame in the buffer."""
        start, end, view = self._start, self._end, self._view
        metadata, body, unpack = self.joiner.metadata, self.joiner.body, FRAME_HEADER.unpack_from
        greeted = self._hello is not None
        try:
            while end - start >= HEADER_LENGTH:
                length, tag, kind = unpack(view, start)
                begin = start + HEADER_LENGTH
                stop = begin + length
                if length < _DIRECT_SIZE and greeted:
                    if stop > end:
                        # Checked at once: the rest may never come.
                        check_header(length, tag, kind)
                        break
                    if kind == _TAGGED:
                        body(tag, bytes(view[begin:stop]))
                        start = stop
                        continue
                    if kind == _UNTAGGED and not tag:
                        metadata(bytes(view[begin:stop]))
                        start = stop
                        continue
                known = check_header(length, tag, kind)
                if length >= _DIRECT_SIZE:
                    start = min(stop, end)
                    self._begin_direct(known, length, tag, view[begin:start])
                    continue
                if stop > end:
                    break
                start = stop
                self._control(known, bytes(view[begin:stop]))
                greeted = True
        finally:
            self._keep(start, end)

    def _keep(self, start: int, end: int) -> None:
        """Moves the beginning of a frame to the front of the buffer when room gets short."""
        if start == end:
            start = end = 0
        elif len(self._buffer) - end < _DIRECT_SIZE + HEADER_LENGTH:
            rest = bytes(self._view[start:end])
            start, end = 0, len(rest)
            self._view[:end] = rest
        self._start, self._end = start, end

    def _control(self, kind: Kind, payload: bytes) -> None:
        if self._hello is None:
            if kind is Kind.ERROR:
                raise parse_error(payload)
            if kind is not Kind.HELLO:
                raise violation(f"frame refused: the first must be HELLO, kind={kind.name}")
            self._hello = Hello.parse(payload)
            self.outbox.free_tag = self._hello.free_data
        elif kind is Kind.SEGMENT:
            segment, size = parse_segment(payload)
            if not self._descriptors:
                raise violation(f"segment refused: no descriptor came, segment={segment}")
            self.segments.add(segment, self._descriptors.popleft(), size)
        elif kind is Kind.ERROR:
            raise parse_error(payload)
        elif kind is Kind.SUMMARY:
            self.summary = Summary.parse(payload)
        elif kind is Kind.HELLO:
            raise violation("frame refused: a second HELLO")

    # ---- large payloads go straight to where they stay

    def _begin_direct(self, kind: Kind, length: int, tag: int, already: memoryview) -> None:
        packed = kind is Kind.TAGGED and body_type(tag) == PACKED
        if self._hello is None or kind not in (Kind.TAGGED, Kind.UNTAGGED):
            raise violation(f"frame refused: too long, kind={kind.name} length={length}")
        if packed:
            self.joiner.expected_body(tag, length)
        elif length > MAX_SHORT_PAYLOAD:
            raise violation(f"frame refused: length out of range, kind={kind.name} length={length}")
        try:
            target: Any = pa.allocate_buffer(length) if packed else bytearray(length)
        except (MemoryError, pa.ArrowException, OverflowError) as e:
            raise DissociatedError(
                Code.RESOURCE_EXHAUSTED, f"no memory for a body: {e}, length={length}"
            ) from e
        view = memoryview(target).cast("B")
        view[: len(already)] = already
        self._direct = (int(kind), tag, target, view)
        self._direct_done = len(already)
        self._complete_direct()

    def _receive_direct(self) -> bool:
        assert self._direct is not None
        received = self._read(self._direct[3][self._direct_done :])
        self._direct_done += received
        self._complete_direct()
        return received > 0

    def _complete_direct(self) -> None:
        assert self._direct is not None
        kind, tag, target, view = self._direct
        if self._direct_done < len(view):
            return
        self._direct = None
        view.release()
        if kind == _UNTAGGED:
            self.joiner.metadata(bytes(target))
        else:
            self.joiner.body(tag, target if isinstance(target, pa.Buffer) else bytes(target))

    # ---- the end

    def finish(self, cancel: bool = False) -> None:
        """No more is read. The connection closes once every lease has ended. Idempotent."""
        if not self._finished:
            self._release()
            self.outbox.finish(cancel)

    def kill(self) -> None:
        """Closes at once; the server takes all leases back."""
        self._release()
        self.outbox.kill()

    def _release(self) -> None:
        self._finished = True
        self._direct = None
        self._drop_descriptors()
        self.joiner.clear()
        self.segments.clear()

    def _drop_descriptors(self) -> None:
        close_all(list(self._descriptors))
        self._descriptors.clear()


def _connect(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_TIMEOUT)
        connection.connect(path)
        connection.setblocking(False)
        return connection
    except OSError as e:
        connection.close()
        raise _unavailable(path, e.strerror or e) from e
    except ValueError as e:
        connection.close()
        raise DissociatedError(Code.INVALID_ARGUMENT, f"bad socket path: {e}") from e
