"""Clients whose memory cannot be read: they stop whoever reads it, or do not let it be read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import LONGEST, wait_until

import dissociated.store
from dissociated._copied import Copied
from dissociated.store import ObjectType, Store

LARGE = bytes(range(256)) * 4096

STOPPING = """
import ctypes, mmap, struct, sys, threading, time
import pyarrow as pa
import dissociated.store
from dissociated._copied import Copied
from dissociated.store import ObjectType

# Memory whose pages never come: whoever touches it waits for as long as this process lives.
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(ctypes.c_long(323), 0x80000)
if fd < 0:
    print("userfaultfd is not permitted here, errno", ctypes.get_errno(), flush=True)
    sys.exit()
size = 1 << 20
memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
api = ctypes.create_string_buffer(struct.pack("<QQQ", 0xAA, 0, 0))
assert libc.ioctl(fd, ctypes.c_ulong(0xC018AA3F), api) == 0
register = ctypes.create_string_buffer(struct.pack("<QQQQ", address, size, 1, 0))
assert libc.ioctl(fd, ctypes.c_ulong(0xC020AA00), register) == 0

store = dissociated.store.connect(sys.argv[1])
parts = Copied.of_parts([pa.foreign_buffer(address, size)])

def put(number):
    store._put_copied(f"stopped/{number}", ObjectType.BYTES, parts, {"flags": 0, "a": 0})

for number in range(int(sys.argv[2])):
    threading.Thread(target=put, args=(number,), daemon=True).start()
while store.usage()["used"] < size * int(sys.argv[2]):
    time.sleep(0.01)  # each has its memory in the daemon, and waits for what is to be copied there
print("stopped", flush=True)
time.sleep(600)
"""


class Stopping:
    """A process that stops so many of the daemon's copies."""

    def __init__(self, path: str, copies: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", STOPPING, path, str(copies)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        if said != "stopped":
            self.end()
            assert said, "it failed"
            pytest.skip(said)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def is_copied(store: Store, name: str) -> bool:
    """Whether the daemon copies for this process; not when it has too many copies under way."""
    copied = Copied.of_parts([pa.py_buffer(LARGE)])
    return store._put_copied(name, ObjectType.BYTES, copied, {"flags": 1, "a": 0})


def serves(store: Store) -> None:
    for name, data in (("large", LARGE), ("small", b"x")):
        store.put(name, data, replace=True)
        assert bytes(store.get(name)) == data and name in store
        store.delete(name)


@pytest.mark.parametrize("copies", [1, 64])
def test_serves_others_while_a_client_stops_copies(store: Store, copies: int) -> None:
    clients = len(store.usage()["clients"])
    stopping = Stopping(store.path, copies)
    try:
        assert store.usage()["used"] >= copies << 20
        for _ in range(3):
            serves(store)
        assert is_copied(store, "probe") == (copies < 64), "the last one there is room for"
        assert not [row for row in store.list() if row.name.startswith("stopped/")]
    finally:
        stopping.end()
    # With the client goes all that it has stopped, and none of it has become an object.
    assert wait_until(lambda: len(store.usage()["clients"]) == clients)
    store.delete("probe") if "probe" in store else None
    assert wait_until(lambda: store.usage()["used"] == 0), store.usage()
    assert is_copied(store, "probe")


@pytest.mark.usefixtures("daemon")
def test_a_daemon_ends_although_a_client_stops_its_copies() -> None:
    started = dissociated.store.start("128m")
    pid = started._daemon.pid  # type: ignore[union-attr]
    stopping = Stopping(started.path, 8)
    try:
        started.close()
        assert wait_until(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        stopping.end()


POWERS = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
"""As root, too, a process then reads the memory of others only if they let it."""


@pytest.fixture
def powerless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: str) -> Iterator[Store]:
    """A daemon that has not root's powers."""
    if (
        not shutil.which("setpriv")
        or subprocess.run(
            [*POWERS, "true"], capture_output=True, timeout=LONGEST, check=False
        ).returncode
    ):
        pytest.skip("powers cannot be given up here")
    real = Path(__file__).resolve().parents[3] / "dissociated"
    program = tmp_path / "dissociated"
    program.write_text(f'#!/bin/sh\nexec {" ".join(POWERS)} {real} "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("DISSOCIATED_HOME", str(tmp_path))
    with dissociated.store.start("128m") as store:
        yield store


PUTS = """
import ctypes, sys
import pyarrow as pa
import dissociated.store
from dissociated._copied import Copied
from dissociated.store import ObjectType
PR_SET_DUMPABLE = 4
assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(sys.argv[2])) == 0
data = bytes(range(256)) * 4096
with dissociated.store.connect(sys.argv[1]) as store:
    copied = Copied.of_parts([pa.py_buffer(data)])
    print(store._put_copied("copied", ObjectType.BYTES, copied, {"flags": 1, "a": 0}))
    store.put("theirs", data, replace=True)
    assert bytes(store.get("theirs")) == data
"""


@pytest.mark.parametrize("lets", [True, False])
def test_takes_puts_of_clients_whose_memory_it_may_not_read(powerless: Store, lets: bool) -> None:
    """A process that is not dumpable refuses as ``kernel.yama.ptrace_scope`` does, with EPERM."""
    done = subprocess.run(
        [*POWERS, sys.executable, "-c", PUTS, powerless.path, str(int(lets))],
        capture_output=True,
        text=True,
        timeout=2 * LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(lets)
    assert ("copied" in powerless) == lets and bytes(powerless.get("theirs")) == LARGE
    # This process has more powers than the daemon, which may not read its memory either.
    serves(powerless)
