"""Memory of this process that its clients may read: sealed segments and blocks in them."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import threading
from typing import Optional

import pyarrow as pa

from .._segments import (
    F_ADD_SEALS,
    F_SEAL_FUTURE_WRITE,
    F_SEAL_GROW,
    F_SEAL_SEAL,
    F_SEAL_SHRINK,
    F_SEAL_WRITE,
)
from ..errors import Code, DissociatedError
from ..wire.frame import MAX_SEGMENT_ID, OFFSET_BITS

_MFD_NOEXEC_SEAL = 0x8
_SMALLEST_BLOCK = 64 << 10
_POOL_SEGMENT = 32 << 20
_PAGE = mmap.PAGESIZE


def _memory_file() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create("dissociated", flags | _MFD_NOEXEC_SEAL)
    except OSError:  # kernels before 6.3
        return os.memfd_create("dissociated", flags)


class MemoryLimit:
    """A limit on the bytes of all segments together. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._used = 0
        self._next_segment = 1

    @property
    def used(self) -> int:
        """Bytes of all segments."""
        return self._used

    def take(self, size: int) -> Optional[int]:
        """An id for a segment of that size, or None when the limit leaves no room."""
        with self._lock:
            if self._used + size > self.limit or self._next_segment > MAX_SEGMENT_ID:
                return None
            self._used += size
            self._next_segment += 1
            return self._next_segment - 1

    def give_back(self, size: int) -> None:
        """A segment is gone."""
        with self._lock:
            self._used -= size


class ServedSegment:
    """One memory file. Clients get a descriptor that can only be read from.

    All pages are allocated at once: a client that read a hole would allocate it.
    """

    def __init__(self, limit: MemoryLimit, size: int) -> None:
        """Raises RESOURCE_EXHAUSTED when there is no room."""
        self.size = -(-max(size, 1) // _PAGE) * _PAGE
        number = limit.take(self.size)
        if number is None:
            raise DissociatedError(
                Code.RESOURCE_EXHAUSTED,
                f"no room for a segment, size={self.size} used={limit.used} limit={limit.limit}",
            )
        self.id = number
        self.base = number << OFFSET_BITS
        self._limit = limit
        self._map: Optional[mmap.mmap] = None
        self._closed = False
        self._writable = _memory_file()
        self.descriptor = -1
        try:
            os.fchmod(self._writable, 0o600)
            os.ftruncate(self._writable, self.size)
            os.posix_fallocate(self._writable, 0, self.size)
            self._map = mmap.mmap(self._writable, self.size)
            path = f"/proc/self/fd/{self._writable}"
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as e:
            self.close()
            raise DissociatedError(
                Code.RESOURCE_EXHAUSTED, f"no memory for a segment: {e.strerror}, size={self.size}"
            ) from e

    @property
    def memory(self) -> memoryview:
        """The memory, for writing; the caller releases the view."""
        assert self._map is not None
        return memoryview(self._map)

    def share(self) -> None:
        """Seals it for sharing: only this process's mapping can write from now on."""
        seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL
        fcntl.fcntl(self._writable, F_ADD_SEALS, seals)

    def freeze(self) -> None:
        """Gives up this process's own mapping and seals it for good: nobody can write again."""
        assert self._map is not None
        self._map.close()
        self._map = None
        seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL
        fcntl.fcntl(self._writable, F_ADD_SEALS, seals)

    def close(self) -> None:
        """Lets go of it; clients keep what they have mapped. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._map is not None:
            with contextlib.suppress(BufferError):
                self._map.close()
            self._map = None
        for descriptor in (self._writable, self.descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._limit.give_back(self.size)


class Block:
    """A range of a pool's segment, lent to one client at a time."""

    __slots__ = ("address", "offset", "segment", "size")

    def __init__(self, segment: ServedSegment, offset: int, size: int) -> None:
        self.segment = segment
        self.offset = offset
        self.size = size
        self.address = segment.base + offset

    def write(self, parts: list[pa.Buffer]) -> None:
        """Copies the parts one behind the other."""
        position = self.offset
        with self.segment.memory as memory:
            for part in parts:
                end = position + len(part)
                memory[position:end] = memoryview(part).cast("B")
                position = end


class Pool:
    """Warm blocks of one trust domain; what one client of a domain has read, no other domain gets.

    Thread-safe. Fresh pages cost many times a copy into warm ones, so blocks are kept.
    """

    def __init__(self, limit: MemoryLimit) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._free: dict[int, list[Block]] = {}
        self._segments: list[ServedSegment] = []
        self._fill = 0
        self._closed = False
        self._lent = 0

    def allocate(self, size: int) -> Optional[Block]:
        """A block of at least that size, or None when the memory limit leaves no room."""
        size = max(_SMALLEST_BLOCK, 1 << (size - 1).bit_length())
        with self._lock:
            free = self._free.get(size)
            block = free.pop() if free else self._carve(size)
            if block is not None:
                self._lent += 1
            return block

    def _carve(self, size: int) -> Optional[Block]:
        last = self._segments[-1] if self._segments else None
        if last is None or self._fill + size > last.size:
            try:
                last = ServedSegment(self._limit, max(size, _POOL_SEGMENT))
            except DissociatedError:
                if size >= _POOL_SEGMENT:
                    return None
                try:
                    last = ServedSegment(self._limit, size)
                except DissociatedError:
                    return None
            last.share()
            self._segments.append(last)
            self._fill = 0
        block = Block(last, self._fill, size)
        self._fill += size
        return block

    def release(self, block: Block) -> None:
        """The client has freed the block."""
        with self._lock:
            self._lent -= 1
            if self._closed:
                self._close_when_idle()
            else:
                self._free.setdefault(block.size, []).append(block)

    def close(self) -> None:
        """The domain has ended: its segments go with the last block."""
        with self._lock:
            self._closed = True
            self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self._lent == 0:
            for segment in self._segments:
                segment.close()
            self._segments.clear()
            self._free.clear()
