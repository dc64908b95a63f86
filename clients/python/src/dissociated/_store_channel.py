"""A client's connection to a store: frames, answers, leases and segments."""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Optional

from ._segments import Segment, SegmentTable, close_all
from ._store_arenas import Arenas
from .errors import Code, DissociatedError, violation
from .wire.frame import (
    FRAME_HEADER,
    HEADER_LENGTH,
    MAX_SEGMENT_ID,
    MAX_SHORT_PAYLOAD,
    Hello,
    Kind,
    check_header,
    frame,
    parse_error,
    parse_segment,
    segment_frame,
)
from .wire.store import (
    STORE_TAG,
    STORE_VERSIONS,
    Op,
    StoreMessage,
    parse_store_message,
    store_message,
)

_ANCILLARY = socket.CMSG_SPACE(2 * array.array("i").itemsize)
_SLICE = 0.5  # seconds after which others may have a turn at reading
_RECEIVE = 256 << 10
_COMPANY = 0.002  # seconds that ends of leases wait for a request to go with
_WINDOW = 128  # requests under way where many are sent at once
_MOST_EVENTS = 1 << 17
_WORTH_FINDING = 4 << 10  # bytes of a buffer from which on its lease can be found by address


class Lease:
    """One lease on an object; ends when the last buffer over it goes."""

    __slots__ = ("__weakref__", "_channel", "_number", "_segments", "device", "numbers", "places")

    def __init__(
        self,
        channel: StoreChannel,
        number: int,
        numbers: list[int],
        segments: list[Segment],
        places: list[tuple[int, int]],
        device: dict[int, tuple[int, int, int]],
    ) -> None:
        self._channel = channel
        self._number = number
        self.numbers = numbers
        self._segments = segments  # stay mapped
        self.places = places
        self.device = device
        """Of the buffers that lie on a device, by their number: arena, offset and length."""

    @property
    def channel(self) -> StoreChannel:
        """The connection that it was had by."""
        return self._channel

    @property
    def path(self) -> str:
        """The socket of the store that it is on."""
        return self._channel.path

    def claim(self, timeout: float) -> tuple[int, int]:
        """A token by which another process can have this object, once."""
        milliseconds = max(1, round(timeout * 1000))
        claimed = self._channel.call(Op.CLAIM, a=self._number, b=milliseconds)
        return claimed.a, claimed.b

    @property
    def is_usable(self) -> bool:
        """Whether it is a lease of this process's, and lasts."""
        return self._channel.is_usable

    def covers(self, address: int, length: int) -> bool:
        """Whether memory is of this lease, so that it does not change while that lasts."""
        return any(
            start <= address and address + length <= start + size for start, size in self.places
        )

    def __del__(self) -> None:
        try:
            self._segments = []
            self._channel.release(self._number, self.numbers)
        except (AttributeError, TypeError):
            pass  # at the interpreter's exit, what release() needs may be gone already


class StoreChannel:
    """One connection. Thread-safe: of those who wait for answers, one reads for all.

    Of a forked child nothing is left but the memory: it must connect anew.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._process = os.getpid()
        self._lock = threading.Condition(threading.Lock())
        self._sending = threading.Lock()
        # Leases end wherever the last reference goes, also where a lock is held.
        self._released: deque[tuple[int, list[int]]] = deque()
        self._answers: dict[int, Optional[StoreMessage]] = {}
        self._segments = SegmentTable()
        self.arenas = Arenas()
        self._in_use: dict[int, int] = {}
        self.events: deque[StoreMessage] = deque()
        self._leases = 0
        self._last_request = 0
        self._last_segment = 0
        self._reading = False
        self._closing = False
        self._failure: Optional[DissociatedError] = None
        self._hello: Optional[Hello] = None
        self._buffer = bytearray()
        self._descriptors: list[int] = []
        # Released to wake the keeper; a lock can be, wherever a lease ends, without waiting.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._is_woken = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as e:
            self._socket.close()
            raise DissociatedError(
                Code.UNAVAILABLE, f"cannot connect: {e.strerror}, socket={path}"
            ) from e
        try:
            self._greet()
        except BaseException:
            self._end()
            raise
        keeper = threading.Thread(
            target=_look_in,
            args=(weakref.ref(self), self._wake),
            name="dissociated-store",
            daemon=True,
        )
        keeper.start()
        _channels.add(self)

    def _greet(self) -> None:
        deadline = time.monotonic() + 5
        while self._hello is None:
            if not self._receive(max(0, deadline - time.monotonic())):
                raise DissociatedError(
                    Code.TIMED_OUT, f"cannot connect: the server says nothing, socket={self.path}"
                )
        self.number = self._open().b

    def _open(self) -> StoreMessage:
        best, *others = STORE_VERSIONS
        try:
            return self.call(Op.OPEN, a=best)
        except DissociatedError as e:
            if e.code is not Code.UNSUPPORTED or self._failure is not None:
                raise
            return self.call(Op.OPEN, a=others[0])  # a daemon that knows nothing of devices

    # ---- asking

    def call(self, op: Op, segments: Optional[list[Any]] = None, **fields: Any) -> StoreMessage:
        """Sends a request and waits for its answer; hands over ``segments`` before it.

        :param segments: pairs of id, from :meth:`next_segments`, and :class:`OwnSegment`
        """
        request = self._enter(1)
        try:
            message = store_message(op, request=request, **fields)
            with self._sending:
                for number, segment in segments or ():
                    size = os.fstat(segment.descriptor).st_size
                    self._send(segment_frame(number, size), segment.descriptor)
                self._send(self._releases() + frame(Kind.TAGGED, message, STORE_TAG))
            answer = self._await(request)
        except BaseException:
            self._abandon(request)
            raise
        with self._lock:
            del self._answers[request]
        if answer.op is Op.FAILED:
            raise answer.failure()
        return answer

    def call_all(self, op: Op, requests: Sequence[dict[str, Any]]) -> None:
        """Sends requests without waiting for the answer to each; raises the first failure."""
        failure = None
        for begin in range(0, len(requests), _WINDOW):
            batch = requests[begin : begin + _WINDOW]
            first = self._enter(len(batch))
            left = range(first, first + len(batch))
            try:
                frames = [
                    frame(Kind.TAGGED, store_message(op, request=first + i, **fields), STORE_TAG)
                    for i, fields in enumerate(batch)
                ]
                with self._sending:
                    self._send(self._releases() + b"".join(frames))
                while left:
                    answer = self._await(left[0])
                    with self._lock:
                        del self._answers[left[0]]
                    left = left[1:]
                    if answer.op is Op.FAILED and failure is None:
                        failure = answer.failure()
            except BaseException:
                for request in left:
                    self._abandon(request)
                raise
        if failure is not None:
            raise failure

    def _enter(self, count: int) -> int:
        """Numbers for so many requests; the first."""
        with self._lock:
            self._require_open()
            first = self._last_request + 1
            self._last_request += count
            for request in range(first, first + count):
                self._answers[request] = None
        return first

    def _abandon(self, request: int) -> None:
        with self._lock:
            late = self._answers.pop(request, None)
        if late is not None:
            self._give_back(late)

    def _give_back(self, answer: StoreMessage) -> None:
        """Nobody waits for what an answer brings."""
        if answer.op is Op.OBJECT:
            self.lease(answer)  # and ends it at once
        elif answer.op is Op.ALLOCATED and self.arenas.drop(answer.a):
            self.say(Op.DROPPED, a=answer.a)

    def next_segments(self, count: int) -> list[int]:
        """Ids that no segment of this client's has that waits for its put."""
        with self._lock:
            numbers = []
            for _ in range(count):
                self._last_segment = self._last_segment % MAX_SEGMENT_ID + 1
                numbers.append(self._last_segment)
            return numbers

    @property
    def is_usable(self) -> bool:
        """Whether it can be asked: it has not failed, and is this process's, not its parent's."""
        return self._failure is None and os.getpid() == self._process

    def _require_open(self) -> None:
        if os.getpid() != self._process:
            raise DissociatedError(Code.UNAVAILABLE, "store not asked: connect anew after a fork")
        if self._closing:
            raise DissociatedError(Code.CANCELLED, "store not asked: this client is closed")
        if self._failure is not None:
            raise DissociatedError(self._failure.code, self._failure.message)

    def _send(self, data: bytes, descriptor: int = -1) -> None:
        try:
            sent = 0
            if descriptor >= 0:
                sent = socket.send_fds(self._socket, [data], [descriptor])
            self._socket.sendall(memoryview(data)[sent:])
        except OSError as e:
            gone = DissociatedError(
                Code.UNAVAILABLE, f"the store is gone: {e.strerror}, socket={self.path}"
            )
            self._failure = self._failure or gone
            raise gone from e

    def _await(self, request: int) -> StoreMessage:
        while True:
            with self._lock:
                while self._answers[request] is None and self._failure is None and self._reading:
                    self._lock.wait(_SLICE)
                answer = self._answers[request]
                if answer is not None:
                    return answer
                self._require_open()
                self._reading = True
            self._read(_SLICE)

    def next_event(self, seconds: Optional[float]) -> Optional[StoreMessage]:
        """Waits for an event; None when the time is over. Without a time, for ever."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            with self._lock:
                while not self.events and self._failure is None and self._reading:
                    self._lock.wait(_SLICE)
                if self.events:
                    return self.events.popleft()
                self._require_open()
                left = _SLICE if deadline is None else min(_SLICE, deadline - time.monotonic())
                if left < 0:
                    return None
                self._reading = True
            self._read(left)

    def _read(self, seconds: float) -> None:
        """Reads for everybody; the caller has set ``_reading``."""
        failure = None
        try:
            self._receive(seconds)
        except DissociatedError as e:
            # Not the same object, whose traceback would keep leases of whoever called.
            failure = DissociatedError(e.code, e.message)
        finally:
            with self._lock:
                self._reading = False
                if failure is not None and self._failure is None:
                    self._failure = failure
                self._lock.notify_all()
            if self._closing and not self._leases:
                self.arenas.leave(self)
                self.drop()

    def look_in(self) -> bool:
        """Takes what has come while nobody waits; whether it is worth coming again."""
        with self._lock:
            if self._failure is not None or self._socket.fileno() < 0:
                return False
            if self._reading:
                return True
            self._reading = True
        self._read(0)
        self._settle()
        return True

    # ---- receiving

    def _receive(self, seconds: float) -> bool:
        poller = select.poll()
        try:
            poller.register(self._socket, select.POLLIN)
            if not poller.poll(int(seconds * 1000)):
                return False
            flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
            data, ancillary, flags, _ = self._socket.recvmsg(_RECEIVE, _ANCILLARY, flags)
        except BlockingIOError:
            return False
        except (OSError, ValueError) as e:
            raise DissociatedError(
                Code.UNAVAILABLE, f"the store is gone: {e}, socket={self.path}"
            ) from e
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(content[: len(content) - len(content) % received.itemsize])
                self._descriptors.extend(received)
        if flags & socket.MSG_CTRUNC or len(self._descriptors) > 1:
            close_all(self._descriptors)
            raise violation("frame refused: more descriptors than segments")
        if not data:
            raise DissociatedError(
                Code.UNAVAILABLE, f"the store is gone: it has closed, socket={self.path}"
            )
        self._buffer += data
        self._dispatch()
        return True

    def _dispatch(self) -> None:
        start, buffer = 0, self._buffer
        while len(buffer) - start >= HEADER_LENGTH:
            length, tag, number = FRAME_HEADER.unpack_from(buffer, start)
            kind = check_header(length, tag, number)
            if length > MAX_SHORT_PAYLOAD:
                raise violation(f"frame refused: too long, length={length}")
            end = start + HEADER_LENGTH + length
            if end > len(buffer):
                break
            payload = bytes(buffer[start + HEADER_LENGTH : end])
            start = end
            self._take(kind, tag, payload)
        del buffer[:start]

    def _take(self, kind: Kind, tag: int, payload: bytes) -> None:
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
            self._segments.add(segment, self._descriptors.pop(), size)
        elif kind is Kind.TAGGED and tag == STORE_TAG:
            self._message(parse_store_message(payload))
        elif kind is not Kind.HEARTBEAT:
            raise violation(f"frame refused: not a store's to send, kind={kind.name}")

    def _message(self, message: StoreMessage) -> None:
        if message.op is Op.HIDE:
            with self._lock:
                if message.a in self._in_use:
                    raise violation(f"segment not hidden: it is in use, segment={message.a}")
                self._segments.forget(message.a)
            self.say(Op.HIDDEN, a=message.a)
            return
        if message.op >= Op.ALLOCATED and self._arena(message):
            return
        if message.op is Op.EVENT:
            with self._lock:
                if len(self.events) == _MOST_EVENTS:
                    raise DissociatedError(
                        Code.RESOURCE_EXHAUSTED, f"too many events wait to be read: {_MOST_EVENTS}"
                    )
                self.events.append(message)
                self._lock.notify_all()
            return
        abandoned = False
        with self._lock:
            if message.op is Op.OBJECT:
                for segment, _, length in message.buffers():
                    if length:
                        self._in_use[segment] = self._in_use.get(segment, 0) + 1
                self._leases += 1
            if message.request in self._answers:
                self._answers[message.request] = message
                self._lock.notify_all()
            else:
                abandoned = True
        if abandoned:
            self._give_back(message)

    def _arena(self, message: StoreMessage) -> bool:
        """Device memory comes or goes; whether that is all the message is for."""
        if message.op is not Op.DROP:
            self.arenas.told(message)
            return message.op is Op.ARENA
        with self._lock:
            if -message.a in self._in_use:
                raise violation(f"arena not dropped: it is in use, arena={message.a}")
        if self.arenas.drop(message.a):
            self.say(Op.DROPPED, a=message.a)
        return True

    def say(self, op: Op, **fields: Any) -> None:
        """Sends what needs no answer."""
        with self._sending:
            self._send(frame(Kind.TAGGED, store_message(op, **fields), STORE_TAG))

    # ---- leases

    def lease(self, answer: StoreMessage) -> Lease:
        """The lease that an OBJECT is; its places are address and length of each buffer."""
        numbers, places, segments, device = [], [], [], {}
        with self._lock:
            for index, (number, offset, length) in enumerate(answer.buffers()):
                if not length:
                    places.append((0, 0))
                    continue
                numbers.append(number)
                if number < 0:
                    device[index] = (-number, offset, length)
                    places.append((0, 0))
                    continue
                segment = self._segments.get(number)
                if offset + length > segment.size:
                    raise violation(
                        f"buffer refused: outside its segment, offset={offset} length={length}"
                    )
                segments.append(segment)
                places.append((segment.address + offset, length))
        lease = Lease(self, answer.a, numbers, segments, places, device)
        if any(length >= _WORTH_FINDING for _, length in places):
            _large[id(lease)] = lease
        return lease

    def release(self, number: int, segments: list[int]) -> None:
        """Ends a lease; nobody uses its buffers any more. Waits for nothing.

        The daemon is told with the next request, or in a moment by the keeper.
        """
        if os.getpid() != self._process:
            return
        self._released.append((number, segments))
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # woken already
                self._wake.release()

    def tell(self) -> bool:
        """The keeper has given ends of leases time to find company; whether it is to go on."""
        self._is_woken = False
        self._settle()
        return self._socket.fileno() >= 0

    def _releases(self) -> bytes:
        """The message that ends what was released, if anything was."""
        if not self._released:
            return b""
        with self._lock:
            ended = self._forget_released()
        if not ended:
            return b""
        payload = struct.pack(f"<{len(ended)}Q", *ended)
        message = store_message(Op.RELEASE, b=len(ended), payload=payload)
        return frame(Kind.TAGGED, message, STORE_TAG)

    def _settle(self) -> None:
        """Ends what was released."""
        try:
            with self._sending:
                releases = self._releases()
                if releases and self._failure is None:
                    self._send(releases)
        except DissociatedError:
            pass  # the connection has ended, and the leases with it
        if self._closing and not self._leases:
            self._end()

    def _forget_released(self) -> list[int]:
        ended = []
        while self._released:
            number, segments = self._released.popleft()
            for segment in segments:
                left = self._in_use[segment] - 1
                if left:
                    self._in_use[segment] = left
                else:
                    del self._in_use[segment]
            self._leases -= 1
            ended.append(number)
        return ended

    def close(self) -> None:
        """No more requests; the connection ends with the last lease. Idempotent."""
        self._closing = True
        if os.getpid() == self._process:
            self._settle()

    def _end(self) -> None:
        self.arenas.leave(self)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who reads
        if not self._reading:
            self.drop()

    def drop(self) -> None:
        """Closes what the connection has open; what is mapped and in use stays."""
        self._socket.close()
        with contextlib.suppress(RuntimeError):  # woken already
            self._wake.release()
        close_all(self._descriptors)
        self._descriptors = []
        self._segments.clear()


def _look_in(reference: weakref.ref[StoreChannel], wake: threading.Lock) -> None:
    """A thread per connection that keeps it going while nobody waits for an answer."""
    look = time.monotonic() + _SLICE
    while True:
        is_woken = wake.acquire(timeout=max(0.0, look - time.monotonic()))
        if is_woken:
            time.sleep(_COMPANY)
        channel = reference()
        if channel is None:
            return
        if is_woken and not channel.tell():
            return
        if time.monotonic() >= look:
            look = time.monotonic() + _SLICE
            if not channel.look_in():
                return
        del channel


# By id: unlike a set, it can be read while another thread adds to it.
_large: weakref.WeakValueDictionary[int, Lease] = weakref.WeakValueDictionary()


def lease_at(address: int, length: int) -> Optional[tuple[Lease, int, int]]:
    """The lease of this process's under which memory lies, in which of its buffers, and where."""
    if length < _WORTH_FINDING:
        return None
    for reference in _large.valuerefs():
        lease = reference()
        if lease is None:
            continue
        for index, (start, size) in enumerate(lease.places):
            if start <= address and address + length <= start + size and lease.is_usable:
                return lease, index, address - start
    return None


_channels: weakref.WeakSet[StoreChannel] = weakref.WeakSet()


def _after_fork() -> None:
    """A child must neither speak on its parent's connections nor keep them open."""
    for channel in list(_channels):
        channel.drop()


os.register_at_fork(after_in_child=_after_fork)
