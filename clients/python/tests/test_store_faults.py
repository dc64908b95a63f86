"""Objects that are damaged, producers and readers that die, daemons that end."""

from __future__ import annotations

import gc
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import run_script, wait_until

import dissociated
from dissociated import Code, DissociatedError
from dissociated.store import ObjectType, Store

LARGE = 100_000


def put_raw(store: Store, name: str, kind: ObjectType, buffers: list[bytes]) -> None:
    store._put_parts(name, kind, buffers, {"flags": 1, "a": 0})


def reads(store: Store, name: str) -> Any:
    """The object, or the code of the one error that says why not."""
    try:
        return store.get(name)
    except DissociatedError as e:
        assert "\n" not in e.message
        return e.code


def test_tells_of_objects_that_are_not_what_they_say(store: Store) -> None:
    store.put("table", pa.table({"x": range(10)}))
    store.put("tensor", np.arange(6))
    metadata, *bodies = (buffer.to_pybytes() for buffer in store.get_buffers("table"))
    tensor = [buffer.to_pybytes() for buffer in store.get_buffers("tensor")]
    cases: dict[str, tuple[ObjectType, list[bytes]]] = {
        "a table of nothing": (ObjectType.TABLE, []),
        "a table of text": (ObjectType.TABLE, [b"this is not Arrow"]),
        "a cut table": (ObjectType.TABLE, [metadata[:-8], *bodies]),
        "a table without bodies": (ObjectType.TABLE, [metadata]),
        "a table with a short body": (ObjectType.TABLE, [metadata, bodies[0][:8]]),
        "a tensor that is a table": (ObjectType.TENSOR, [metadata, *bodies]),
        "a tensor of another shape": (
            ObjectType.TENSOR,
            [tensor[0].replace(b'"shape":[6]', b'"shape":[7]'), *tensor[1:]],
        ),
        "a pickle of nothing": (ObjectType.PICKLE, []),
        "an empty pickle": (ObjectType.PICKLE, [b""]),
        "a pickle of text": (ObjectType.PICKLE, [b"this is no pickle"]),
        "a pickle without its buffers": (ObjectType.PICKLE, [b"\x80\x05\x97\x94."]),
    }
    for name, (kind, buffers) in cases.items():
        put_raw(store, name, kind, buffers)
        assert reads(store, name) is Code.DATA_CORRUPT, name


def test_survives_damaged_tables_and_tensors(store: Store) -> None:
    """In another process, which would not survive a fault."""
    store.put("table", pa.table({"x": [1, None] * 50, "s": ["a", "text"] * 50}))
    store.put("tensor", np.arange(600).reshape(20, 30) * 1j)
    seed = random.randrange(1 << 32)
    print("seed of the damage:", seed)
    script = """
        import random, sys
        import pyarrow as pa
        import dissociated.store
        from dissociated import Code, DissociatedError
        random.seed(int(sys.argv[2]))
        told = 0
        with dissociated.store.connect(sys.argv[1]) as store:
            for name in ("table", "tensor"):
                kind = store.stat(name).type
                whole = [buffer.to_pybytes() for buffer in store.get_buffers(name)]
                for i in range(300):
                    metadata = bytearray(whole[0])
                    for _ in range(random.randrange(1, 4)):
                        metadata[random.randrange(len(metadata))] = random.choice((0, 1, 127, 255))
                    store._put_parts("x", kind, [metadata, *whole[1:]], {"flags": 1, "a": 0})
                    try:
                        found = store.get("x")
                        if isinstance(found, pa.Table):
                            found.validate(full=True)
                        str(found)
                    except pa.ArrowException:
                        pass
                    except DissociatedError as e:
                        assert e.code in (Code.DATA_CORRUPT, Code.UNSUPPORTED), e
                        told += 1
            store.delete("x")
        print(told)
    """
    assert int(run_script(script, store.path, str(seed))) > 50


def test_a_killed_reader_holds_nothing(store: Store) -> None:
    store.put("x", np.arange(LARGE))
    script = """
import sys, time, dissociated
with dissociated.connect(sys.argv[1]) as client:
    held = [client.get("x") for _ in range(10)]
    print("holds", flush=True)
    time.sleep(600)
"""
    reader = subprocess.Popen(
        [sys.executable, "-c", script, store.path], stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "holds\n" and store.usage()["leases"] == 10
    reader.kill()
    reader.wait()
    reader.stdout.close()
    assert wait_until(lambda: store.usage()["leases"] == 0)


def test_a_producer_cannot_write_to_what_it_has_put(store: Store) -> None:
    """Not by its own array, nor by the address that was writable before: that ends it."""
    script = """
import ctypes, sys, dissociated
with dissociated.connect(sys.argv[1]) as client:
    with client.create("x", 100_000) as own:
        own[:] = 1
    try:
        own[0] = 2
    except ValueError:
        print("refused", flush=True)
    ctypes.memset(own.ctypes.data, 2, 8)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, store.path], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.stdout == "refused\n" and done.returncode == -signal.SIGSEGV
    assert (store.get("x") == 1).all()


def test_what_is_held_outlives_a_killed_daemon_and_clients_connect_anew(
    daemon: str, tmp_path: Path
) -> None:
    options = ["--socket", str(tmp_path / "s")]
    first = dissociated.store.start("64m", options=options)
    with dissociated.store.connect(first.path) as store:
        store.put("x", np.arange(LARGE))
        store.put("t", pa.table({"x": range(LARGE)}))
        array, table = store.get("x"), store.get("t")
        os.kill(first._daemon.pid, signal.SIGKILL)  # type: ignore[union-attr]
        first.close()
        with pytest.raises(DissociatedError) as gone:
            store.get("x")
        assert gone.value.code is Code.UNAVAILABLE and store.path in gone.value.message
        assert array.sum() == sum(range(LARGE)) and table["x"][LARGE - 1].as_py() == LARGE - 1
        with dissociated.store.start("64m", options=options):
            assert "x" not in store
            store.put("x", b"again")
            assert bytes(store.get("x")) == b"again"
        assert array[7] == 7
    del array, table
    gc.collect()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("how", ["end", "exception", "kill", "fork"])
def test_a_daemon_ends_with_the_script_that_started_it(how: str) -> None:
    script = """
import os, sys, time, dissociated
client = dissociated.connect()
client.put("x", b"x")
assert dissociated.connect().get("x")
if sys.argv[1] == "fork" and not os.fork():
    assert dissociated.connect().get("x")
    time.sleep(600)
print(os.environ["DISSOCIATED_SOCKET"], client.store.usage()["limit"], flush=True)
if sys.argv[1] == "exception":
    raise SystemExit(3)
if sys.argv[1] in ("kill", "fork"):
    time.sleep(600)
"""
    environment = {k: v for k, v in os.environ.items() if k != "DISSOCIATED_SOCKET"}
    started = subprocess.Popen(
        [sys.executable, "-c", script, how],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert started.stdout is not None
    try:
        path = started.stdout.readline().split()[0]
        if how in ("kill", "fork"):
            assert Path(path).is_socket()
            started.kill()
        started.wait()
        assert wait_until(lambda: not Path(path).exists())
        pid = int(Path(path).name.partition("-")[0])
        assert wait_until(lambda: not is_alive(pid))
    finally:
        os.killpg(started.pid, signal.SIGKILL) if how == "fork" else None
        started.stdout.close()


def test_says_why_no_daemon_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISSOCIATED_HOME", str(tmp_path))
    with pytest.raises(DissociatedError) as none:
        dissociated.store.start()
    assert none.value.code is Code.NOT_FOUND and str(tmp_path) in none.value.message
    program = tmp_path / "dissociated"
    for text, why in (("echo no memory >&2; exit 1", "no memory"), ("echo what", "it says b'what")):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(stat.S_IRWXU)
        with pytest.raises(DissociatedError) as failed:
            dissociated.store.start()
        assert failed.value.code is Code.UNAVAILABLE and why in failed.value.message
        assert "\n" not in failed.value.message
