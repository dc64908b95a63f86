"""Mapping memory files by the calls of the C library."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import time
import weakref
from typing import Any, Optional

from .errors import Code, DissociatedError

PAGE = mmap.PAGESIZE
HUGE_PAGE = 2 << 20
MAP_FIXED = 0x10
MAP_NORESERVE = 0x4000
_MADV_COLLAPSE = 25
_PATIENCE, _PATIENCE_EACH = 0.1, 0.003  # seconds; as much of small pages takes 1 to 3 ms
_JOINED_AT_ONCE = 64 << 20  # each call waits for every processor once
_MREMAP_MAYMOVE = 1
_MREMAP_DONTUNMAP = 4
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61  # of an entry of the page map
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_mremap = getattr(_libc, "mremap", None)  # Linux only
if _mremap is not None:
    _mremap.restype = ctypes.c_void_p
    _mremap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_void_p,
    ]

_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

unmap = _libc.munmap


def map_file(address: int, size: int, protection: int, flags: int, descriptor: int) -> int:
    """Maps the beginning of a file; the address."""
    mapped = _libc.mmap(address or None, size, protection, flags, descriptor, 0)
    if mapped == _FAILED:
        error = os.strerror(ctypes.get_errno())
        raise DissociatedError(Code.RESOURCE_EXHAUSTED, f"memory not mapped: {error}, size={size}")
    return int(mapped)


def place_for(size: int) -> int:
    """An address for a mapping of whole huge pages; 0 where the kernel may choose.

    Only a hint: should another thread have taken the place, the kernel chooses one.
    """
    if size < HUGE_PAGE:
        return 0
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    found = _libc.mmap(None, size + HUGE_PAGE, 0, flags, -1, 0)
    if found == _FAILED:
        return 0
    unmap(found, size + HUGE_PAGE)
    return int(-(-found // HUGE_PAGE) * HUGE_PAGE)


def make_huge_pages(descriptor: int, address: int, size: int) -> None:
    """Gives a memory file huge pages from its beginning, as far as they can be had at once.

    They take a tenth of the time of small ones, to make as to take away again. The kernel joins
    what is there, and one small page is enough.

    :param address: where it is mapped, writable
    """
    if address % HUGE_PAGE:
        return
    give_up = time.monotonic() + _PATIENCE
    whole = size // HUGE_PAGE * HUGE_PAGE
    for start in range(0, whole, _JOINED_AT_ONCE):
        length = min(_JOINED_AT_ONCE, whole - start)
        for at in range(start, start + length, HUGE_PAGE):
            os.posix_fallocate(descriptor, at, PAGE)
        if _libc.madvise(address + start, length, _MADV_COLLAPSE):
            if ctypes.get_errno() == errno.EINVAL:
                return  # before Linux 6.1
            os.posix_fallocate(descriptor, start, length)  # there was none in one piece for some
        give_up += _PATIENCE_EACH * length / HUGE_PAGE
        if time.monotonic() > give_up:
            return  # the kernel has to find memory in one piece first


class PrivateView:
    """A writable view of memory that lies in a private mapping and does not change.

    What is written to it is seen by nobody else: the kernel copies each page at its first write.
    The memory itself stays as it is.
    """

    def __init__(self, address: int, length: int, owner: Any) -> None:
        """Raises OSError where the kernel cannot (before 5.13).

        :param owner: what keeps the memory while this lives
        """
        self._start = 0
        self._owner = owner
        begin = address // PAGE * PAGE
        self._size = -(-(address + length - begin) // PAGE) * PAGE
        # The pages move to the new mapping; the old one finds the file's again.
        flags = _MREMAP_MAYMOVE | _MREMAP_DONTUNMAP
        assert _mremap is not None, "segments are Linux's"
        start = _mremap(begin, self._size, self._size, flags, None)
        if start == _FAILED:
            raise OSError(ctypes.get_errno(), "no second mapping")
        self._start = start
        if _libc.mprotect(start, self._size, mmap.PROT_READ | mmap.PROT_WRITE):
            raise OSError(ctypes.get_errno(), "no writable mapping")
        self.address = start + address - begin
        self.length = length
        self.distance = begin - start
        """From an address in this view to the same byte in what it is a view of."""
        _views[id(self)] = self

    def buffer(self) -> Any:
        """The memory as a ctypes array, which keeps it."""
        array = (ctypes.c_char * self.length).from_address(self.address)
        array._owner = self  # type: ignore[attr-defined]
        return array

    def is_untouched(self) -> bool:
        """Whether nothing has been written to it: all its pages still are the file's."""
        count = self._size // PAGE
        try:
            with open("/proc/self/pagemap", "rb", buffering=0) as pages:
                entries = os.pread(pages.fileno(), 8 * count, self._start // PAGE * 8)
        except OSError:
            return False
        found = struct.unpack(f"<{len(entries) // 8}Q", entries)
        return len(found) == count and not any(
            entry & _SWAPPED or entry & _PRESENT and not entry & _OF_FILE for entry in found
        )

    def __del__(self) -> None:
        try:
            if self._start:
                unmap(self._start, self._size)
        except TypeError:
            pass  # at the interpreter's exit


# By id: unlike a set, it can be read while another thread adds to it.
_views: weakref.WeakValueDictionary[int, PrivateView] = weakref.WeakValueDictionary()


def private_view_at(address: int, length: int) -> Optional[PrivateView]:
    """The private view in which memory lies, if it does in one."""
    for reference in _views.valuerefs():
        view = reference()
        if view is None:
            continue
        if view.address <= address and address + length <= view.address + view.length:
            return view
    return None
