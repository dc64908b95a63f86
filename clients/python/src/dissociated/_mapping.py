"""Mapping memory files by the calls of the C library."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

from .errors import Code, DissociatedError

PAGE = mmap.PAGESIZE
MAP_FIXED = 0x10
MAP_NORESERVE = 0x4000
_MREMAP_MAYMOVE = 1
_MREMAP_DONTUNMAP = 4
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

unmap = _libc.munmap


def map_file(address: int, size: int, protection: int, flags: int, descriptor: int) -> int:
    """Maps the beginning of a file; the address."""
    mapped = _libc.mmap(address or None, size, protection, flags, descriptor, 0)
    if mapped == _FAILED:
        error = os.strerror(ctypes.get_errno())
        raise DissociatedError(Code.RESOURCE_EXHAUSTED, f"memory not mapped: {error}, size={size}")
    return int(mapped)


class PrivateView:
    """A writable view of memory that lies in a private mapping of an immutable file.

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

    def buffer(self) -> Any:
        """The memory as a ctypes array, which keeps it."""
        array = (ctypes.c_char * self.length).from_address(self.address)
        array._owner = self  # type: ignore[attr-defined]
        return array

    def __del__(self) -> None:
        try:
            if self._start:
                unmap(self._start, self._size)
        except TypeError:
            pass  # at the interpreter's exit
