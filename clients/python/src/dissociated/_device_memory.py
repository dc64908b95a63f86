"""Memory of a GPU that this process reads: whose it is, and when it is given back."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Optional

from . import _cuda
from ._cuda import CudaDevice
from .errors import Code, DissociatedError, violation
from .wire.cuda import DeviceMemory

logger = logging.getLogger("dissociated")

ALIGNMENT = 256
"""What the runtime's allocator gives too, and what libraries on the device expect."""

_EXIT_SECONDS = 10.0


# ---- memory of other processes


class DeviceImport:
    """Memory of an exporter's as this process reaches it.

    Opened once, however many connections and objects use it, and closed with the last of them.
    Thread-safe. This process exports nothing itself, so that no location names its own memory.
    """

    def __init__(self, memory: DeviceMemory, device: CudaDevice, address: int, size: int) -> None:
        self._exporter = memory.exporter
        self.device = device
        self._base = address
        self._size = size
        self._users = 0

    @classmethod
    def open(cls, memory: DeviceMemory) -> DeviceImport:
        """Opens memory; each success needs a :meth:`close`. UNAVAILABLE where it cannot be had."""
        with _opening:
            known = _open.get(memory.exporter)
            if known is None:
                known = _open[memory.exporter] = cls._opened(memory)
            known._users += 1
            return known

    @classmethod
    def _opened(cls, memory: DeviceMemory) -> DeviceImport:
        if memory.handle is None:
            raise _refused(memory, "it has no handle, and only its own process reads it")
        device = _cuda.device_of(memory.device)
        if device is None:
            raise _refused(memory, "this process does not see the device")
        try:
            return cls(memory, device, *device.open(memory.handle, memory.event))
        except DissociatedError as e:
            raise _refused(memory, e.message) from e

    def resolve(self, offset: int, length: int) -> int:
        """The address in this process of a range that the exporter named."""
        if offset + length > self._size:
            raise violation(
                f"address refused: outside the allocation, address={offset} length={length} "
                f"size={self._size}"
            )
        return self._base + offset

    def close(self) -> None:
        """One user less."""
        with _opening:
            self._users -= 1
            if self._users:
                return
            if _open.pop(self._exporter, None) is None:
                return  # of the process that this one was forked from
            # Under the lock: opened again meanwhile, the driver would count the two together.
            self.device.close(self._base)


def _refused(memory: DeviceMemory, why: str) -> DissociatedError:
    return DissociatedError(
        Code.UNAVAILABLE,
        f"device memory not opened: {why}, exporter={memory.exporter} device={memory.device}",
    )


# Reentrant: views may go, and with them what they hold, wherever Python looks for garbage.
_opening = threading.RLock()
_open: dict[str, DeviceImport] = {}


# ---- when the last view has gone


class Hold:
    """What device memory is read under. Every view has it; it ends with the last of them.

    Before it ends, the work on the device that reads the memory is waited for: by whoever closes
    the last view, otherwise by a thread of this package's.
    """

    def __init__(self, device: CudaDevice, release: Callable[[], None]) -> None:
        """Calls ``release`` once."""
        self.device = device
        self._release = release
        self._streams: set[int] = set()
        self._process = os.getpid()

    def used_by(self, stream: int) -> None:
        """Only the streams that were named are waited for at the end; without any, all work."""
        self._streams.add(stream)

    def __del__(self) -> None:
        try:
            if os.getpid() != self._process:
                return
            end = partial(_end, self.device, tuple(self._streams), self._release)
            if not getattr(_closing, "now", False):
                later(end)
                return
            end()
        except DissociatedError as e:
            _closing.failure = e
        except (AttributeError, TypeError):
            pass  # half made, or at the interpreter's exit


def _end(device: CudaDevice, streams: tuple[int, ...], release: Callable[[], None]) -> None:
    try:
        device.synchronize(streams)
    finally:
        release()


class View:
    """Something that can be used until it is closed, and that keeps device memory until then."""

    def __init__(self, hold: Hold) -> None:
        self._hold: Optional[Hold] = hold

    def _held(self) -> Hold:
        if self._hold is None:
            raise ValueError("the view of device memory is closed")
        return self._hold

    @property
    def device(self) -> int:
        """The number of the device, as this process counts."""
        return self._held().device.ordinal

    def used_by(self, stream: Any) -> None:
        """Names a CUDA stream (its number, or anything with one) that works on the memory.

        The memory is given back after the streams that were named have done their work; without
        any, after everything that this process does on the device.
        """
        protocol = getattr(stream, "__cuda_stream__", None)
        self._held().used_by(int(protocol()[1] if protocol is not None else stream))

    def close(self) -> None:
        """Lets go of the memory, which is given back with its last view. Idempotent.

        Waits for work on the device where this is the last one.
        """
        _closing.now, _closing.failure = True, None
        try:
            self._hold = None
        finally:
            _closing.now = False
        if _closing.failure is not None:
            failure, _closing.failure = _closing.failure, None
            raise failure

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_closing: Any = threading.local()


def own_memory(device: CudaDevice, size: int) -> tuple[int, Hold]:
    """New memory of this process's, and what it lies under."""
    address = device.allocate(max(ALIGNMENT, size))
    return address, Hold(device, partial(device.free, address))


# ---- the thread that waits for the device


class _Keeper:
    """Ends what nobody closed: what Python collects must wait for nothing where it is collected."""

    def __init__(self) -> None:
        self._ends: queue.SimpleQueue[Optional[Callable[[], None]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Starts the thread, once. Not from where garbage is collected."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="dissociated-cuda", daemon=True
                )
                self._thread.start()

    def later(self, end: Callable[[], None]) -> None:
        """Has the thread end something; waits for nothing."""
        self._ends.put(end)

    def _work(self) -> None:
        while True:
            end = self._ends.get()
            if end is None:
                return
            try:
                end()
            except Exception as e:
                logger.warning("device memory not given back in order: %s", e)

    def stop(self) -> None:
        """Ends what was collected, as far as the device does not take too long."""
        if self._thread is not None:
            self._ends.put(None)
            self._thread.join(_EXIT_SECONDS)


_keeper = _Keeper()


def start_keeper() -> None:
    """Before the first view of device memory is made."""
    _keeper.start()


def later(end: Callable[[], None]) -> None:
    """Has the keeper end something; waits for nothing."""
    _keeper.later(end)


def _after_fork() -> None:
    """The driver, its memory and the thread are the parent's."""
    global _opening, _keeper
    _opening = threading.RLock()
    _open.clear()
    _keeper = _Keeper()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(lambda: _keeper.stop())
