"""The DoExchange call that controls a stream found through Flight."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from typing import Any, Optional

import pyarrow.flight as flight

from ._flight_errors import from_flight
from ._joiner import Joiner
from .errors import Code, DissociatedError, violation
from .wire import ExchangeCommand, ExchangeOffer, split_metadata

_OFFER_SECONDS = 30.0
_FINAL = 64
"""End-of-call answers in a row that are the real end; one alone may be a heartbeat."""


class FlightCall:
    """One DoExchange call, read by a thread of its own because pyarrow only reads by blocking.

    The thread ends with the call. ``fileno`` becomes readable when :meth:`drain` has news.
    """

    def __init__(self, client: Any, command: ExchangeCommand, options: Any) -> None:
        self.last_heard = time.monotonic()
        self._messages: deque[bytes] = deque()
        self._error: Optional[BaseException] = None
        self._ended = threading.Event()
        self._closing = False
        self._lock = threading.Lock()
        self._wake_out: int = -1
        self._offer: Optional[ExchangeOffer] = None
        descriptor = flight.FlightDescriptor.for_command(command.encode())
        self._writer, self._reader = client.do_exchange(descriptor, options)
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(
            target=self._pump, name="dissociated-flight-call", daemon=True
        )
        self._thread.start()

    # ---- the reading thread

    def _pump(self) -> None:
        try:
            # Half-closing sends the descriptor, which otherwise waits for a first message.
            self._writer.done_writing()
            ends = 0
            while ends < _FINAL:
                try:
                    chunk = self._reader.read_chunk()
                except StopIteration:
                    # pyarrow says this for an empty message too, which is a heartbeat. The real
                    # end is told again and again.
                    ends += 1
                    self.last_heard = time.monotonic()
                    continue
                ends = 0
                self.last_heard = time.monotonic()
                if chunk.app_metadata is not None:
                    self._messages.append(chunk.app_metadata.to_pybytes())
                    self._wake()
        except BaseException as e:
            self._error = e
        finally:
            # The writer's close gives the call's status, and lets go of its resources.
            try:
                self._writer.close()
            except BaseException as e:
                self._error = self._error or e
            self._ended.set()
            self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._wake_out >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._wake_out, b"\0")

    # ---- the stream's thread

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to drain."""
        return self._wake_in

    def offer(self) -> ExchangeOffer:
        """Waits for the server's token and locations."""
        deadline = time.monotonic() + _OFFER_SECONDS
        poller = select.poll()
        poller.register(self._wake_in, select.POLLIN)
        while not self._messages:
            if self._ended.is_set() and not self._messages:
                raise self.failure("stream refused") or violation(
                    "stream refused: the call ended without an offer"
                )
            if time.monotonic() > deadline:
                raise DissociatedError(Code.TIMED_OUT, "stream refused: no offer came")
            poller.poll(1000)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_in, 4096)
        return ExchangeOffer.parse(self._messages.popleft())

    def drain(self, joiner: Joiner) -> bool:
        """Hands over the metadata that has come; whether there was any."""
        # Read first, and also when the call has only ended: whoever polls would spin otherwise.
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_in, 4096)
        messages = self._messages
        if not messages:
            return False
        while messages:
            for message in split_metadata(messages.popleft()):
                joiner.metadata(message)
        return True

    @property
    def has_ended(self) -> bool:
        """Whether the call is over."""
        return self._ended.is_set()

    def wait_for_end(self, seconds: float) -> None:
        """Waits for the call's status."""
        self._ended.wait(seconds)

    def failure(self, what: str) -> Optional[DissociatedError]:
        """Why the call failed, if it did."""
        error = self._error
        return None if error is None else from_flight(what, error)

    def close(self, cancel: bool) -> None:
        """Ends the call: waits for the server's status, or cancels. Idempotent."""
        if self._closing:
            return
        self._closing = True
        if not cancel:
            self._ended.wait(1.0)
        if not self._ended.is_set():
            with contextlib.suppress(Exception):
                self._reader.cancel()
        self._thread.join(5.0)
        with self._lock:
            os.close(self._wake_out)
            self._wake_out = -1
        os.close(self._wake_in)
        self._writer = self._reader = None
