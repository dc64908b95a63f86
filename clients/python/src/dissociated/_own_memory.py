"""Memory that this process fills, makes immutable even for itself, and hands over to a store."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
from typing import Any

from ._segments import (
    F_ADD_SEALS,
    F_SEAL_FUTURE_WRITE,
    F_SEAL_GROW,
    F_SEAL_SEAL,
    F_SEAL_SHRINK,
    F_SEAL_WRITE,
)
from .errors import Code, DissociatedError

_PAGE = mmap.PAGESIZE
_MAP_FIXED = 0x10
_MAP_FAILED = ctypes.c_void_p(-1).value
_MFD_NOEXEC_SEAL = 8
_FIRST_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE

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


def create_file() -> int:
    """The descriptor of an empty memory file that can be sealed."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        descriptor = os.memfd_create("dissociated", flags | _MFD_NOEXEC_SEAL)
    except OSError:  # kernels before 6.3
        descriptor = os.memfd_create("dissociated", flags)
    os.fchmod(descriptor, 0o600)
    return descriptor


def write_all(descriptor: int, data: Any) -> None:
    """Appends bytes-like data to a memory file."""
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        done += os.write(descriptor, view[done : done + (1 << 30)])


def _map(address: int, size: int, protection: int, flags: int, descriptor: int) -> int:
    mapped = _libc.mmap(address or None, size, protection, flags, descriptor, 0)
    if mapped == _MAP_FAILED:
        error = os.strerror(ctypes.get_errno())
        raise DissociatedError(
            Code.RESOURCE_EXHAUSTED, f"memory not mapped: {error}, size={size}"
        )
    return int(mapped)


class OwnSegment:
    """A memory file on its way to a store, mapped or not.

    What was mapped stays readable where it is until this object goes, which every view holds.
    """

    def __init__(self, descriptor: int, mapped_size: int = 0) -> None:
        """Takes the descriptor over; maps it for writing if a size is given."""
        self.descriptor = descriptor
        self._address = 0
        self._mapped = -(-mapped_size // _PAGE) * _PAGE
        if not self._mapped:
            return
        try:
            # Memory is there from the start: touching a page that cannot be had ends the process.
            os.posix_fallocate(descriptor, 0, self._mapped)
            protection = mmap.PROT_READ | mmap.PROT_WRITE
            self._address = _map(0, self._mapped, protection, mmap.MAP_SHARED, descriptor)
        except OSError as e:
            os.close(descriptor)
            raise DissociatedError(
                Code.RESOURCE_EXHAUSTED, f"no shared memory: {e.strerror}, size={mapped_size}"
            ) from e

    def view(self, size: int) -> Any:
        """A ctypes array over the mapping, which it keeps."""
        array = (ctypes.c_char * size).from_address(self._address)
        array._owner = self  # type: ignore[attr-defined]
        return array

    def freeze(self) -> int:
        """Seals it for good; the size."""
        fcntl.fcntl(self.descriptor, F_ADD_SEALS, _FIRST_SEALS)
        flags = os.O_RDONLY | os.O_CLOEXEC
        read_only = os.open(f"/proc/self/fd/{self.descriptor}", flags)
        try:
            if self._address:
                fixed = mmap.MAP_SHARED | _MAP_FIXED
                _map(self._address, self._mapped, mmap.PROT_READ, fixed, read_only)
            fcntl.fcntl(self.descriptor, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL)
        except BaseException:
            os.close(read_only)
            raise
        os.close(self.descriptor)
        self.descriptor = read_only
        return os.fstat(read_only).st_size

    def close(self) -> None:
        """Closes the descriptor; views stay. Idempotent."""
        if self.descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        try:
            self.close()
            if self._address:
                _libc.munmap(self._address, self._mapped)
        except (AttributeError, TypeError):
            pass  # half made, or at the interpreter's exit
