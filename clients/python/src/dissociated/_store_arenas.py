"""Memory of devices that a store's daemon owns, as one connection knows it."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from .errors import DissociatedError, violation
from .wire.store import Op, StoreMessage
from .wire.store_device import ArenaInfo, parse_arena, require_arena

if TYPE_CHECKING:
    from ._device_memory import DeviceImport
    from ._store_channel import StoreChannel


class Arenas:
    """The arenas of a connection. Thread-safe.

    Each is opened when it is first needed, and stays so until the daemon drops it or the connection
    ends: nothing of CUDA is loaded for those who never meet an object on a device.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._known: dict[int, ArenaInfo] = {}
        self._open: dict[int, DeviceImport] = {}
        self._process = os.getpid()

    def told(self, message: StoreMessage) -> None:
        """The daemon says what an arena is."""
        arena = parse_arena(message)
        with self._lock:
            if arena.number in self._known:
                raise violation(f"arena refused: announced twice, arena={arena.number}")
            self._known[arena.number] = arena

    def require(self, number: int) -> None:
        """Refuses a buffer in an arena that was never announced."""
        if number not in self._known:
            raise violation(f"buffer refused: its arena was never announced, arena={number}")

    def drop(self, number: int) -> bool:
        """Closes an arena that one of the ends gives up; whether it was known, and is to be
        answered.
        """
        with self._lock:
            known = self._known.pop(require_arena(number), None)
            opened = self._open.pop(number, None)
        if opened is not None:
            opened.close()
        return known is not None

    def open(self, number: int) -> DeviceImport:
        """An arena's memory, which stays open. UNSUPPORTED without CUDA."""
        from . import _cuda
        from ._device_memory import DeviceImport

        _cuda.require()
        with self._lock:
            self.require(number)
            opened = self._open.get(number)
            if opened is None:
                opened = self._open[number] = DeviceImport.open(self._known[number].memory)
            return opened

    def info(self, number: int) -> ArenaInfo:
        """What the daemon said of an arena."""
        with self._lock:
            self.require(number)
            return self._known[number]

    def leave(self, channel: StoreChannel) -> None:
        """Closes what is open before the connection is, and says so: it is free at once then."""
        if os.getpid() != self._process:
            return
        with self._lock:
            numbers, opened = list(self._known), list(self._open.values())
            self._known.clear()
            self._open.clear()
        for memory in opened:
            with contextlib.suppress(DissociatedError):
                memory.close()
        for number in numbers:
            with contextlib.suppress(DissociatedError):
                channel.say(Op.DROPPED, a=number)

    def __del__(self) -> None:
        """The connection broke, and nobody has closed it."""
        try:
            if os.getpid() == self._process and self._open:
                from ._device_memory import later

                for memory in self._open.values():
                    later(memory.close)
        except (AttributeError, TypeError, ImportError):
            pass  # half made, or at the interpreter's exit
