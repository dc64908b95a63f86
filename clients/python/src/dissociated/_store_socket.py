"""The socket of a connection to a store: messages, descriptors, and the segments they are of."""

from __future__ import annotations

import array
import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import Optional

from ._segments import SegmentTable, close_all
from ._spin import Spin
from .errors import Code, DissociatedError, violation
from .wire.frame import (
    FRAME_HEADER,
    HEADER_LENGTH,
    MAX_SHORT_PAYLOAD,
    Hello,
    Kind,
    check_header,
    parse_error,
    parse_segment,
)
from .wire.store import STORE_TAG, StoreMessage, parse_store_message

SLICE = 0.5
"""Seconds after which a wait looks around itself."""

_GREETING = 5.0
_CAPACITY = 64 << 10
_ANCILLARY = socket.CMSG_SPACE(2 * array.array("i").itemsize)
_TIMEOUT = struct.pack("@ll", 0, int(SLICE * 1e6))  # struct timeval
_TAGGED = int(Kind.TAGGED)
# Numbers: those of the module socket are enumerated, and slow to combine.
_FLAGS = int(socket.MSG_CMSG_CLOEXEC)
_AT_ONCE = _FLAGS | int(socket.MSG_DONTWAIT)
_CUT = int(socket.MSG_CTRUNC)


def _refuse(message: StoreMessage) -> None:
    raise violation(f"store message refused: nothing was asked, op={message.op.name}")


class StoreSocket:
    """Sending is for one thread at a time, and so is receiving.

    Every wait has a bound: :data:`SLICE` for what is to be received.
    """

    def __init__(self, path: str) -> None:
        """Connects, and waits until the server has said who it is."""
        self.path = path
        self.segments = SegmentTable()
        self._hello: Optional[Hello] = None
        self._descriptors: list[int] = []
        self._memory = bytearray(_CAPACITY)
        self._into = [memoryview(self._memory)]
        self._spin = Spin()
        self._end = 0  # of what has come and not been handled
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The kernel's own time-out: a poll before each receive costs as much as the receive.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEOUT)
            self._socket.connect(path)
            self._poller = select.poll()
            self._poller.register(self._socket, select.POLLIN)
        except OSError as e:
            self._socket.close()
            raise DissociatedError(
                Code.UNAVAILABLE, f"cannot connect: {e.strerror}, socket={path}"
            ) from e
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        deadline = time.monotonic() + _GREETING
        while self._hello is None:
            if not self.receive(SLICE, _refuse) and time.monotonic() >= deadline:
                raise DissociatedError(
                    Code.TIMED_OUT, f"cannot connect: the server says nothing, socket={self.path}"
                )

    # ---- sending

    def send(self, data: bytes, descriptor: int = -1) -> None:
        """Sends whole frames; a descriptor travels with the first byte."""
        try:
            if descriptor < 0:
                self._socket.sendall(data)
            else:
                sent = socket.send_fds(self._socket, [data], [descriptor])
                self._socket.sendall(memoryview(data)[sent:])
        except OSError as e:
            raise self._gone(e.strerror) from e

    def _gone(self, why: object) -> DissociatedError:
        return DissociatedError(Code.UNAVAILABLE, f"the store is gone: {why}, socket={self.path}")

    # ---- receiving

    def receive(self, seconds: float, take: Callable[[StoreMessage], None]) -> bool:
        """Waits so long for something, :data:`SLICE` at most, and handles what is whole of it.

        Whether anything came. Raises what the server says it fails with, and what it does wrong;
        then the connection is over.

        :param take: gets the messages
        """
        received = self._read(seconds)
        if received:
            self._end += received
            self._dispatch(take)
        return received > 0

    def _read(self, seconds: float) -> int:
        if self._end:
            self._into = [memoryview(self._memory)[self._end :]]
        try:
            if seconds >= SLICE:
                flags = _AT_ONCE if self._spin.until(self._poller.poll) else _FLAGS
            elif seconds <= 0 or self._poller.poll(int(seconds * 1000)):
                flags = _AT_ONCE
            else:
                return 0
            received, ancillary, found, _ = self._socket.recvmsg_into(self._into, _ANCILLARY, flags)
        except BlockingIOError:
            return 0
        except (OSError, ValueError) as e:
            raise self._gone(e) from e
        if ancillary or found & _CUT:
            self._keep_descriptors(ancillary, found)
        if not received:
            raise self._gone("it has closed")
        return received

    def _keep_descriptors(self, ancillary: list[tuple[int, int, bytes]], found: int) -> None:
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(content[: len(content) - len(content) % received.itemsize])
                self._descriptors.extend(received)
        if found & _CUT or len(self._descriptors) > 1:
            self._drop_descriptors()
            raise violation("frame refused: more descriptors than segments")

    def _dispatch(self, take: Callable[[StoreMessage], None]) -> None:
        memory, start, end = self._memory, 0, self._end
        while end - start >= HEADER_LENGTH:
            length, tag, number = FRAME_HEADER.unpack_from(memory, start)
            begin = start + HEADER_LENGTH
            stop = begin + length
            if number == _TAGGED and tag == STORE_TAG and stop <= end and self._hello:
                start = stop
                take(parse_store_message(bytes(memory[begin:stop])))
                continue
            kind = check_header(length, tag, number)
            if length > MAX_SHORT_PAYLOAD:
                raise violation(f"frame refused: too long, length={length}")
            if stop > end:
                break
            start = stop
            self._control(kind, tag, bytes(memory[begin:stop]))
        self._keep(start, end)

    def _keep(self, start: int, end: int) -> None:
        """Moves the beginning of a frame to the front; memory grows as its bytes really come."""
        rest = end - start
        if rest:
            left = self._memory[start:end]
            if rest > len(self._memory) // 2:
                self._memory = bytearray(2 * len(self._memory))
            self._memory[:rest] = left
        if rest or self._end != end or len(self._into[0]) != len(self._memory):
            self._into = [memoryview(self._memory)]
        self._end = rest

    def _control(self, kind: Kind, tag: int, payload: bytes) -> None:
        if kind is Kind.ERROR:
            raise parse_error(payload)
        if self._hello is None:
            if kind is not Kind.HELLO:
                raise violation(f"frame refused: the first must be HELLO, kind={kind.name}")
            self._hello = Hello.parse(payload)
        elif kind is Kind.SEGMENT:
            segment, size = parse_segment(payload)
            if not self._descriptors:
                raise violation(f"segment refused: no descriptor came, segment={segment}")
            self.segments.add(segment, self._descriptors.pop(), size)
        elif kind is not Kind.HEARTBEAT:
            raise violation(f"frame refused: not a store's to send, kind={kind.name} tag={tag:#x}")

    # ---- the end

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed here."""
        return self._socket.fileno() >= 0

    def shut(self) -> None:
        """Ends both directions, which wakes whoever receives."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes what is open; what is mapped and in use stays. Idempotent."""
        self._socket.close()
        self._drop_descriptors()
        self.segments.clear()

    def _drop_descriptors(self) -> None:
        close_all(self._descriptors)
        self._descriptors = []
