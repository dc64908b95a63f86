"""Memory that goes to another process by reference, and is read there where it lies.

A reference is the token of a claim, and where in which buffer of the claimed object the memory is.
The claim ends when the reference is loaded, when its time is over, or with this process.
"""

from __future__ import annotations

import os
import threading
import uuid
from typing import Any, NamedTuple, Optional

import pyarrow as pa

from ._mapping import private_view_at
from ._store_leases import Lease, lease_at
from .store import Store, connect

UNNAMED_SECONDS = 60.0  # what dies between its put and its claim is not left behind for longer


class Reference(NamedTuple):
    """Where memory is: fits into a pickle."""

    path: str
    high: int
    low: int
    buffer: int
    offset: int
    length: int


def refer(memory: Any, path: str, timeout: float) -> Reference:
    """A reference to memory: to where it lies in a store, otherwise to a copy that is put there.

    :param memory: bytes-like, in one piece
    :param timeout: how many seconds it can be loaded
    """
    buffer = pa.py_buffer(memory)
    found = _shared(buffer.address, buffer.size)
    if found is None:
        lease, index, offset = _put(store_at(path), buffer), 0, 0
    else:
        lease, index, offset = found
        path = lease.path
    high, low = lease.claim(timeout)
    return Reference(path, high, low, index, offset, buffer.size)


def _shared(address: int, length: int) -> Optional[tuple[Lease, int, int]]:
    """The lease under which memory lies and where, if it still is as the store has it."""
    view = private_view_at(address, length)
    if view is not None:
        if not view.is_untouched():
            return None
        address += view.distance
    return lease_at(address, length)


def _put(store: Store, buffer: pa.Buffer) -> Lease:
    name = f"references/{os.getpid()}/{uuid.uuid4().hex}"
    store.put(name, buffer, pin=True, ttl=UNNAMED_SECONDS)
    try:
        return store.lease(name)[2]
    finally:
        store.delete(name)


def load(reference: Reference) -> tuple[pa.Buffer, Lease]:
    """The memory of a reference, which can be loaded once, and what it lies under."""
    buffers, lease = store_at(reference.path).take(reference.high, reference.low)
    return buffers[reference.buffer].slice(reference.offset, reference.length), lease


# ---- one connection to each store, for as long as this process lives

_stores: dict[str, Store] = {}
_lock = threading.Lock()


def store_at(path: str) -> Store:
    """This process's connection for references."""
    with _lock:
        store = _stores.get(path)
        if store is None:
            store = _stores[path] = connect(path)
        return store


def _after_fork() -> None:
    """Another thread of the parent's may have held the lock; stores connect anew by themselves."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
