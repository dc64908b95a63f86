"""Memory that this process fills, makes immutable even for itself, and hands over to a store."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
from typing import Any

from ._mapping import MAP_FIXED, PAGE, make_huge_pages, map_file, place_for, unmap
from ._segments import (
    F_ADD_SEALS,
    F_SEAL_FUTURE_WRITE,
    F_SEAL_GROW,
    F_SEAL_SEAL,
    F_SEAL_SHRINK,
    F_SEAL_WRITE,
)
from .errors import Code, DissociatedError

_MFD_NOEXEC_SEAL = 8
_FIRST_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE


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


class OwnSegment:
    """A memory file on its way to a store, mapped or not.

    What was mapped stays readable where it is until this object goes, which every view holds.
    """

    def __init__(self, descriptor: int, mapped_size: int = 0) -> None:
        """Takes the descriptor over; maps it for writing if a size is given."""
        self.descriptor = descriptor
        self._address = 0
        self._mapped = -(-mapped_size // PAGE) * PAGE
        if not self._mapped:
            return
        try:
            os.ftruncate(descriptor, self._mapped)
            protection = mmap.PROT_READ | mmap.PROT_WRITE
            place = place_for(self._mapped)
            self._address = map_file(place, self._mapped, protection, mmap.MAP_SHARED, descriptor)
            make_huge_pages(descriptor, self._address, self._mapped)
            # Memory is there from the start: touching a page that cannot be had ends the process.
            os.posix_fallocate(descriptor, 0, self._mapped)
        except OSError as e:
            self.close()
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
                fixed = mmap.MAP_SHARED | MAP_FIXED
                map_file(self._address, self._mapped, mmap.PROT_READ, fixed, read_only)
            fcntl.fcntl(self.descriptor, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL)
        except OSError as e:
            os.close(read_only)
            if e.errno != errno.EBUSY:
                raise
            read_only = self._copy()
        except BaseException:
            os.close(read_only)
            raise
        os.close(self.descriptor)
        self.descriptor = read_only
        return os.fstat(read_only).st_size

    def _copy(self) -> int:
        """A frozen copy: a child that was forked meanwhile has this memory mapped, and may write.

        Views of this process's show what they showed, and what such a child makes of it.
        """
        size = os.fstat(self.descriptor).st_size
        with contextlib.closing(OwnSegment(create_file())) as copy:
            done = 0
            while done < size:
                done += os.sendfile(copy.descriptor, self.descriptor, done, size - done)
            copy.freeze()
            return os.dup(copy.descriptor)

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
                unmap(self._address, self._mapped)
        except (AttributeError, TypeError):
            pass  # half made, or at the interpreter's exit
