"""Segments of a server's memory, mapped read-only into this process."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import threading
import weakref
from collections import Counter

from ._mapping import MAP_NORESERVE, map_file, place_for, unmap
from .errors import violation

F_ADD_SEALS = 1033
F_GET_SEALS = 1034
F_SEAL_SEAL = 0x1
F_SEAL_SHRINK = 0x2
F_SEAL_GROW = 0x4
F_SEAL_WRITE = 0x8
F_SEAL_FUTURE_WRITE = 0x10

_BLOCK = 512  # the unit of st_blocks, whatever the file system's own is

_mappings: weakref.WeakValueDictionary[tuple[int, int, int], Segment] = (
    weakref.WeakValueDictionary()
)
_usage: Counter[str] = Counter()
_usage_lock = threading.RLock()  # a segment may go while it is held


def mapping_usage() -> dict[str, int]:
    """How many segments, and how many bytes of them, this process has mapped just now."""
    with _usage_lock:
        return {"segments": _usage["segments"], "bytes": _usage["bytes"]}


def _count(segments: int, size: int) -> None:
    with _usage_lock:
        _usage["segments"] += segments
        _usage["bytes"] += size


class Segment:
    """One mapped segment.

    Unmapped when the last reference to this object goes, which every buffer taken from it holds.
    """

    __slots__ = ("__weakref__", "address", "is_immutable", "size")

    def __init__(self, segment: int, descriptor: int, size: int) -> None:
        """Checks and maps a received descriptor; the caller still closes it."""
        seals = _check(segment, descriptor, size)
        self.size = size
        self.is_immutable = bool(seals & F_SEAL_WRITE)
        # Linux shows the file's own pages, whatever becomes of them, in a private mapping as in a
        # shared one as long as nothing is written to it; and of a private one there can be views
        # that are written to.
        flags = mmap.MAP_PRIVATE | MAP_NORESERVE
        self.address = map_file(place_for(size), size, mmap.PROT_READ, flags, descriptor)
        _count(1, size)

    def __del__(self) -> None:
        try:
            if hasattr(self, "address"):
                unmap(self.address, self.size)
                _count(-1, -self.size)
        except TypeError:
            pass  # at the interpreter's exit


def _check(segment: int, descriptor: int, size: int) -> int:
    """Refuses memory that could shrink, grow, or be written by a later mapping; gives its seals."""
    try:
        seals = fcntl.fcntl(descriptor, F_GET_SEALS)
    except OSError as e:
        raise violation(f"segment refused: not a sealable memory file: {e}") from e
    fixed = F_SEAL_SHRINK | F_SEAL_GROW
    if seals & fixed != fixed or not seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE):
        raise violation(f"segment refused: not sealed, segment={segment} seals={seals:#x}")
    status = os.fstat(descriptor)
    if status.st_size != size:
        raise violation(
            "segment refused: not of the announced size, "
            f"segment={segment} announced={size} actual={status.st_size}"
        )
    if status.st_blocks * _BLOCK < size:
        # Reading a hole would allocate it, on this process's account.
        raise violation(
            "segment refused: it has holes, "
            f"segment={segment} size={size} allocated={status.st_blocks * _BLOCK}"
        )
    return seals


def _mapped(segment: int, descriptor: int, size: int) -> Segment:
    """The segment's one mapping in this process, shared by all connections that were shown it."""
    status = os.fstat(descriptor)
    key = (status.st_dev, status.st_ino, size)
    with _usage_lock:
        known = _mappings.get(key)
    if known is None:
        known = Segment(segment, descriptor, size)
        with _usage_lock:
            known = _mappings.setdefault(key, known)
    return known


class SegmentTable:
    """The segments announced on one connection, by id."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}

    def add(self, segment: int, descriptor: int, size: int) -> None:
        """Maps a newly announced segment and closes its descriptor."""
        try:
            if segment in self._segments:
                raise violation(f"segment refused: announced twice, segment={segment}")
            self._segments[segment] = _mapped(segment, descriptor, size)
        finally:
            close_all([descriptor])

    def get(self, segment: int) -> Segment:
        """The segment of that id."""
        found = self._segments.get(segment)
        if found is None:
            raise violation(f"buffer refused: its segment was never announced, segment={segment}")
        return found

    def forget(self, segment: int) -> None:
        """Forgets a segment, whose id may come again; it stays mapped while buffers live."""
        self._segments.pop(segment, None)

    def clear(self) -> None:
        """Forgets every segment; those with live buffers stay mapped until these go."""
        self._segments.clear()


def close_all(descriptors: list[int]) -> None:
    """Closes descriptors that nobody wants."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _after_fork() -> None:
    """Another thread of the parent's may have held the lock."""
    global _usage_lock
    _usage_lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
