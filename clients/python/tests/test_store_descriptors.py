"""Descriptors handed over that are no segments, or are segments in another guise."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from conftest import wait_until

from dissociated import Code, DissociatedError
from dissociated.store import ObjectType, Store, _shared
from dissociated.wire.frame import segment_frame
from dissociated.wire.store import Op

PAGE = 4096
HUGE = 2 << 20
SHRINK, GROW, WRITE, FUTURE_WRITE, SEAL = 2, 4, 8, 16, 1
FOR_GOOD = SHRINK | GROW | WRITE | SEAL
F_ADD_SEALS = 1033


def memory_file(size: int = PAGE, seals: int = FOR_GOOD, flags: int = 0) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC | flags)
    if flags:
        os.ftruncate(descriptor, size)
    else:
        os.write(descriptor, bytes(size))
    if seals:
        fcntl.fcntl(descriptor, F_ADD_SEALS, seals)
    return descriptor


def reopened(descriptor: int, flags: int) -> int:
    again = os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC)
    os.close(descriptor)
    return again


def hand_over(store: Store, descriptor: int, size: int, name: str = "x") -> None:
    """Puts the first bytes of a descriptor, which is closed, as a segment of that size."""
    channel = store._channel
    number = channel.next_segments(1)[0]
    try:
        with channel._sending:
            channel._send(segment_frame(number, size), descriptor)
        entry = _shared(number, 0, 8)
        channel.call(
            Op.PUT, name=name.encode(), kind=ObjectType.BYTES, b=1, payload=entry, flags=0, a=0
        )
    finally:
        os.close(descriptor)


def daemons_descriptors(store: Store) -> int:
    pid = int(Path(store.path).name.partition("-")[0])
    targets = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            targets.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return sum(not target.endswith(".jar") for target in targets)


def file_on_a_disk(folder: Path) -> int:
    path = folder / "file"
    path.write_bytes(bytes(PAGE))
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def file_in_memory(_: Path) -> int:
    """Of a tmpfs, like a memory file, but reachable by a path."""
    path = Path("/dev/shm") / f"dissociated-test-{os.getpid()}"
    path.write_bytes(bytes(PAGE))
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    finally:
        path.unlink()


def event_poll(_: Path) -> int:
    poll = select.epoll()
    try:
        return os.dup(poll.fileno())
    finally:
        poll.close()


def terminal(_: Path) -> int:
    ours, theirs = os.openpty()
    os.close(theirs)
    return ours


NOT_SEGMENTS: dict[str, Callable[[Path], int]] = {
    "a path to a good memory file": lambda _: reopened(memory_file(), os.O_PATH),
    "a path to a folder": lambda folder: os.open(folder, os.O_PATH | os.O_CLOEXEC),
    "a folder": lambda folder: os.open(folder, os.O_RDONLY | os.O_CLOEXEC),
    "a file on a disk": file_on_a_disk,
    "a file on a disk, read-only": lambda f: reopened(file_on_a_disk(f), os.O_RDONLY),
    "a file of a tmpfs": file_in_memory,
    "/dev/zero": lambda _: os.open("/dev/zero", os.O_RDWR | os.O_CLOEXEC),
    "/dev/null": lambda _: os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC),
    "a file of the kernel's": lambda _: os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC),
    "an epoll": event_poll,
    "a terminal": terminal,
    "a process": lambda _: os.pidfd_open(os.getpid()),
    "a huge page with a hole": lambda _: memory_file(HUGE, FOR_GOOD, os.MFD_HUGETLB),
    "a huge page without seals": lambda _: memory_file(HUGE, 0, os.MFD_HUGETLB),
}


@pytest.mark.parametrize("what", NOT_SEGMENTS)
def test_refuses_what_is_no_segment(store: Store, tmp_path: Path, what: str) -> None:
    store.put("before", b"x")
    before = daemons_descriptors(store)
    for size in (PAGE, HUGE):
        with pytest.raises(DissociatedError) as refused:
            hand_over(store, NOT_SEGMENTS[what](tmp_path), size)
        assert refused.value.code is Code.INVALID_ARGUMENT
        assert "segment refused" in refused.value.message and "\n" not in refused.value.message
    # The connection has survived it, and the daemon has kept nothing.
    assert "x" not in store
    assert wait_until(lambda: daemons_descriptors(store) <= before)


def test_refuses_memory_that_its_sender_still_has_mapped_writable(store: Store) -> None:
    descriptor = memory_file(PAGE, SHRINK | GROW | FUTURE_WRITE)
    own = memory_file(PAGE, 0)
    with mmap.mmap(own, PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
        with pytest.raises(OSError) as busy:
            fcntl.fcntl(own, F_ADD_SEALS, FOR_GOOD)
        assert busy.value.errno == errno.EBUSY
        fcntl.fcntl(own, F_ADD_SEALS, SHRINK | GROW | FUTURE_WRITE | SEAL)
        for writable in (own, descriptor):
            with pytest.raises(DissociatedError) as refused:
                hand_over(store, writable, PAGE)
            assert refused.value.code is Code.INVALID_ARGUMENT
            assert "not sealed for good" in refused.value.message
        mapped[0] = 7  # which is why
    assert "x" not in store


def test_takes_what_is_sealed_whatever_the_descriptor_may_do(store: Store) -> None:
    hand_over(store, memory_file(), PAGE, "writable")
    hand_over(store, reopened(memory_file(), os.O_RDONLY), PAGE, "read-only")
    for name in ("writable", "read-only"):
        assert bytes(store.get(name)) == bytes(8)


@pytest.fixture
def huge_pages() -> Iterator[None]:
    free = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    if not free.exists() or int(free.read_text()) < 2:
        pytest.skip("no huge pages are reserved here")
    yield


@pytest.mark.usefixtures("huge_pages")
def test_takes_sealed_huge_pages(store: Store) -> None:
    own = memory_file(2 * HUGE, 0, os.MFD_HUGETLB)
    with mmap.mmap(own, 2 * HUGE) as mapped:
        mapped[:8] = b"far away"
        mapped[HUGE] = 1
    fcntl.fcntl(own, F_ADD_SEALS, FOR_GOOD)
    used = store.usage()["used"]
    hand_over(store, own, 2 * HUGE)
    assert store.usage()["used"] == used + 2 * HUGE
    held = store.get("x")
    assert bytes(held) == b"far away"
    store.delete("x")
    assert bytes(held) == b"far away"
