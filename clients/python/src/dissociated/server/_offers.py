"""Streams that were offered in a Flight call and wait to be claimed on a data connection."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from typing import Any, Optional

from ..errors import Code, DissociatedError
from ..wire.exchange import TOKEN_LENGTH
from ._connection import Connection

OFFER_SECONDS = 30.0
_QUEUED = 16


class Offer:
    """One stream of one Flight call: its token, and the metadata on its way to that call."""

    def __init__(self, name: str, identity: str, mode: int) -> None:
        self.token = secrets.token_bytes(TOKEN_LENGTH)
        self.name = name
        self.identity = identity
        self.mode = mode
        self.expires = time.monotonic() + OFFER_SECONDS
        self.connection: Optional[Connection] = None
        self.error: Optional[BaseException] = None
        self.finished = False
        self.cancelled = threading.Event()
        self._queue: queue.Queue[Optional[bytes]] = queue.Queue(_QUEUED)

    def send(self, metadata: bytes) -> None:
        """Hands metadata to the call; waits while the call does not keep up."""
        while True:
            if self.cancelled.is_set():
                raise DissociatedError(Code.CANCELLED, "the call was cancelled")
            try:
                self._queue.put(metadata, timeout=0.5)
                return
            except queue.Full:
                continue

    def finish(self, error: Optional[BaseException]) -> None:
        """The stream is over."""
        self.error = error
        while not self.cancelled.is_set():
            try:
                self._queue.put(None, timeout=0.5)
                return
            except queue.Full:
                continue

    def receive(self, seconds: float) -> Optional[bytes]:
        """The next metadata, None at the end; raises queue.Empty after ``seconds``."""
        return self._queue.get(timeout=seconds)


class Offers:
    """All offers that wait. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[bytes, Offer] = {}

    def add(self, offer: Offer) -> None:
        """Makes an offer claimable."""
        with self._lock:
            self._waiting[offer.token] = offer

    def remove(self, offer: Offer) -> None:
        """The offer's call has ended."""
        with self._lock:
            self._waiting.pop(offer.token, None)

    def claim(self, token: bytes) -> Optional[Offer]:
        """The offer with that token, once and not after it has expired."""
        with self._lock:
            offer: Any = self._waiting.pop(token, None)
        if offer is None or offer.expires < time.monotonic():
            return None
        return offer
