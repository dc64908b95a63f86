"""A client's connection to a store: requests, answers, and the leases that these give."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Optional, Union

from ._segments import Segment
from ._store_arenas import Arenas
from ._store_leases import Lease
from ._store_socket import SLICE, StoreSocket
from .errors import Code, DissociatedError, violation
from .wire.frame import MAX_SEGMENT_ID, segment_frame
from .wire.store import STORE_VERSIONS, Op, StoreMessage, store_frame

_COMPANY = 0.002  # seconds that ends of leases wait for a request to go with
_WINDOW = 128  # requests under way where many are sent at once
_MOST_EVENTS = 1 << 17
_Answer = Union[StoreMessage, Lease, DissociatedError]


class StoreChannel:
    """One connection. Thread-safe: of those who wait for answers, one reads for all.

    Of a forked child nothing is left but the memory: it must connect anew.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._sending = threading.Lock()
        # Leases end wherever the last reference goes, also where a lock is held.
        self._released: deque[tuple[int, list[int]]] = deque()
        self._answers: dict[int, Optional[_Answer]] = {}
        self.arenas = Arenas()
        self._in_use: dict[int, int] = {}
        self.events: deque[StoreMessage] = deque()
        self._leases = 0
        self._last_request = 0
        self._last_segment = 0
        self._reading = False
        self._closing = False
        self._failure: Optional[DissociatedError] = None
        # Released to wake the keeper; a lock can be, wherever a lease ends, without waiting.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._is_woken = False
        self._socket = StoreSocket(path)
        try:
            self.number = self._open().b
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
            message = store_frame(op, request, **fields)
            with self._sending:
                for number, segment in segments or ():
                    size = os.fstat(segment.descriptor).st_size
                    self._send(segment_frame(number, size), segment.descriptor)
                self._send(self._releases() + message if self._released else message)
            answer = self._await(request)
        except BaseException:
            self._abandon(request)
            raise
        if type(answer) is not StoreMessage:
            raise self._unexpected(answer)
        return answer

    def lease(self, op: Op, name: bytes = b"", a: int = 0, b: int = 0) -> Lease:
        """Asks for an object, and waits for the lease on it."""
        request = self._enter(1)
        try:
            message = store_frame(op, request, name, a, b)
            with self._sending:
                self._send(self._releases() + message if self._released else message)
            answer = self._await(request)
        except BaseException:
            self._abandon(request)
            raise
        if type(answer) is not Lease:
            raise self._unexpected(answer)
        return answer

    def claim(self, lease: int, timeout: float) -> tuple[int, int]:
        """A token by which another process can have the object that a lease is on."""
        claimed = self.call(Op.CLAIM, a=lease, b=max(1, round(timeout * 1000)))
        return claimed.a, claimed.b

    @staticmethod
    def _unexpected(answer: _Answer) -> DissociatedError:
        if isinstance(answer, DissociatedError):
            return answer
        op = Op.OBJECT if isinstance(answer, Lease) else answer.op
        return violation(f"store message refused: another answer was due, op={op}")

    def call_all(self, op: Op, requests: Sequence[dict[str, Any]]) -> None:
        """Sends requests without waiting for the answer to each; raises the first failure."""
        failure = None
        for begin in range(0, len(requests), _WINDOW):
            batch = requests[begin : begin + _WINDOW]
            first = self._enter(len(batch))
            left = range(first, first + len(batch))
            try:
                frames = [store_frame(op, first + i, **fields) for i, fields in enumerate(batch)]
                with self._sending:
                    self._send(self._releases() + b"".join(frames))
                while left:
                    answer = self._await(left[0])
                    left = left[1:]
                    if isinstance(answer, DissociatedError) and failure is None:
                        failure = answer
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
        self._give_back(late)

    def _give_back(self, answer: Optional[_Answer]) -> None:
        """Nobody waits for what an answer brings; a lease ends by itself."""
        if isinstance(answer, StoreMessage) and answer.op is Op.ALLOCATED:
            if self.arenas.drop(answer.a):
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
            self._socket.send(data, descriptor)
        except DissociatedError as e:
            self._failure = self._failure or e
            raise

    def _await(self, request: int) -> _Answer:
        while True:
            with self._lock:
                answer = self._answers[request]
                while answer is None and self._failure is None and self._reading:
                    self._wait()
                    answer = self._answers[request]
                if answer is not None:
                    del self._answers[request]
                    return answer
                self._require_open()
                self._reading = True
            self._read(SLICE)

    def _wait(self) -> None:
        """Under the lock, until somebody else has read something."""
        self._waiting += 1
        try:
            self._changed.wait(SLICE)
        finally:
            self._waiting -= 1

    def next_event(self, seconds: Optional[float]) -> Optional[StoreMessage]:
        """Waits for an event; None when the time is over. Without a time, for ever."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            with self._lock:
                while not self.events and self._failure is None and self._reading:
                    self._wait()
                if self.events:
                    return self.events.popleft()
                self._require_open()
                left = SLICE if deadline is None else min(SLICE, deadline - time.monotonic())
                if left < 0:
                    return None
                self._reading = True
            self._read(left)

    def _read(self, seconds: float) -> None:
        """Reads for everybody; the caller has set ``_reading``."""
        failure = None
        try:
            self._socket.receive(seconds, self._message)
        except DissociatedError as e:
            # Not the same object, whose traceback would keep leases of whoever called.
            failure = DissociatedError(e.code, e.message)
        finally:
            with self._lock:
                self._reading = False
                if failure is not None and self._failure is None:
                    self._failure = failure
                if self._waiting:
                    self._changed.notify_all()
            if self._closing and not self._leases:
                self.arenas.leave(self)
                self.drop()

    def look_in(self) -> bool:
        """Takes what has come while nobody waits; whether it is worth coming again."""
        with self._lock:
            if self._failure is not None or not self._socket.is_open:
                return False
            if self._reading:
                return True
            self._reading = True
        self._read(0)
        self._settle()
        return True

    # ---- what the daemon says, on whichever thread reads

    def _message(self, message: StoreMessage) -> None:
        answer: _Answer = message
        if message.op is Op.OBJECT:
            answer = self._leased(message)
        elif message.op is Op.FAILED:
            answer = message.failure()
        elif message.op is Op.HIDE:
            self._hide(message.a)
            return
        elif message.op is Op.EVENT:
            self._event(message)
            return
        elif message.op >= Op.ALLOCATED and self._arena(message):
            return
        with self._lock:
            awaited = message.request in self._answers
            if awaited:
                self._answers[message.request] = answer
                if self._waiting:
                    self._changed.notify_all()
        if not awaited:
            self._give_back(answer)

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

    def _hide(self, segment: int) -> None:
        with self._lock:
            if segment in self._in_use:
                raise violation(f"segment not hidden: it is in use, segment={segment}")
            self._socket.segments.forget(segment)
        self.say(Op.HIDDEN, a=segment)

    def say(self, op: Op, **fields: Any) -> None:
        """Sends what needs no answer."""
        with self._sending:
            self._send(store_frame(op, **fields))

    def _event(self, message: StoreMessage) -> None:
        with self._lock:
            if len(self.events) == _MOST_EVENTS:
                raise DissociatedError(
                    Code.RESOURCE_EXHAUSTED, f"too many events wait to be read: {_MOST_EVENTS}"
                )
            self.events.append(message)
            self._changed.notify_all()

    # ---- leases

    def _leased(self, message: StoreMessage) -> _Answer:
        """The lease that an OBJECT is, or why it cannot be used."""
        buffers = message.buffers()
        numbers = [segment for segment, _, length in buffers if length]
        with self._lock:
            in_use = self._in_use
            for number in numbers:
                in_use[number] = in_use.get(number, 0) + 1
            self._leases += 1
        lease = Lease(self, message.a, message.type, numbers)
        places: list[tuple[int, int]] = []
        segments: list[Segment] = []
        device: dict[int, tuple[int, int, int]] = {}
        try:
            for number, offset, length in buffers:
                if not length:
                    places.append((0, 0))
                    continue
                if number < 0:
                    device[len(places)] = (-number, offset, length)
                    places.append((0, 0))
                    continue
                segment = self._socket.segments.get(number)
                if offset + length > segment.size:
                    raise violation(
                        f"buffer refused: outside its segment, offset={offset} length={length}"
                    )
                segments.append(segment)
                places.append((segment.address + offset, length))
        except DissociatedError as e:
            return e
        lease.place(places, segments, device)
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
        return self._socket.is_open

    def _releases(self) -> bytes:
        """The message that ends what was released, if anything was."""
        if not self._released:
            return b""
        with self._lock:
            ended = self._forget_released()
        if not ended:
            return b""
        payload = struct.pack(f"<{len(ended)}Q", *ended)
        return store_frame(Op.RELEASE, b=len(ended), payload=payload)

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
        self._socket.shut()
        if not self._reading:
            self.drop()

    def drop(self) -> None:
        """Closes what the connection has open; what is mapped and in use stays."""
        self._socket.close()
        with contextlib.suppress(RuntimeError):  # woken already
            self._wake.release()


def _look_in(reference: weakref.ref[StoreChannel], wake: threading.Lock) -> None:
    """A thread per connection that keeps it going while nobody waits for an answer."""
    look = time.monotonic() + SLICE
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
            look = time.monotonic() + SLICE
            if not channel.look_in():
                return
        del channel


_channels: weakref.WeakSet[StoreChannel] = weakref.WeakSet()


def _after_fork() -> None:
    """A child must neither speak on its parent's connections nor keep them open."""
    for channel in list(_channels):
        channel.drop()


os.register_at_fork(after_in_child=_after_fork)
