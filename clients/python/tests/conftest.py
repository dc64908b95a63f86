"""Servers in processes of their own, and a look for leaks after every test."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import data
import pyarrow as pa
import pytest
import standin

import dissociated
import dissociated.store
from dissociated import Code, DissociatedError, _cuda
from dissociated._device_memory import start_keeper

HERE = Path(__file__).resolve().parent
LONGEST = 60.0
"""Seconds after which something hangs; nothing is expected to take that long."""
_WATCHED = ("socket:", "pipe:", "memfd:dissociated", "anon_inode:[eventpoll]", "/memfd:dissociated")


def wait_until(condition: Callable[[], bool]) -> bool:
    """Waits for something that another thread or process does."""
    deadline = time.monotonic() + LONGEST
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def usage() -> dict[str, int]:
    """What this process holds: descriptors, mappings of segments, threads of ours."""
    descriptors = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            descriptors += os.readlink(f"/proc/self/fd/{name}").startswith(_WATCHED)
    maps = Path("/proc/self/maps").read_text("utf-8")
    threads = [t for t in threading.enumerate() if t.name.startswith("dissociated")]
    return {
        "descriptors": descriptors,
        "mappings": maps.count("memfd:dissociated"),
        "threads": len(threads),
    }


@pytest.fixture(scope="session", autouse=True)
def warm_up() -> None:
    """gRPC and pyarrow open descriptors of their own at their first use and keep them."""
    table = pa.table({"x": [1]})
    with dissociated.serve({"t": table}) as server, dissociated.connect(server.uri) as client:
        client.read_all("t")
        client.list()


@pytest.fixture(autouse=True)
def no_leaks(warm_up: None) -> Iterator[None]:
    """After every test no descriptor, mapping or thread is left."""
    gc.collect()
    before = usage()
    yield

    def is_clean() -> bool:
        gc.collect()
        now = usage()
        return all(now[key] <= before[key] for key in before)

    assert wait_until(is_clean), f"left over: {usage()} before: {before}"


def run_script(script: str, *arguments: str) -> str:
    """Runs a Python program given as text; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=2 * LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class ServerProcess:
    """A server in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server did not start"
        self.ready: dict[str, Any] = json.loads(line)
        self.uri: str = self.ready["flight"]
        self.socket: str = self.ready["socket"]

    def stat(self) -> dict[str, Any]:
        with dissociated.connect(self.socket) as client:
            return client.stat()

    def leases(self) -> int:
        return sum(stream["leases"] for stream in self.stat()["streams"])

    def stop(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.terminate()
        try:
            self.process.wait(LONGEST)
        finally:
            self.process.kill()
            self.process.stdin.close()
            self.process.stdout.close()


@pytest.fixture(scope="session")
def server(warm_up: None) -> Iterator[ServerProcess]:
    """One server for all tests that leave it alive; nothing stays leased on it."""
    started = ServerProcess(str(HERE / "serving.py"))
    yield started
    assert wait_until(lambda: started.leases() == 0), started.stat()
    started.stop()


@pytest.fixture(scope="session")
def daemon() -> Iterator[str]:
    """The socket of a store's daemon for all tests that leave it alive."""
    try:
        started = dissociated.store.start("512m")
    except DissociatedError as e:
        required = os.environ.get("DISSOCIATED_REQUIRE", "").split(",")
        if e.code is not Code.NOT_FOUND or "python" in required:
            raise
        pytest.skip(e.message)
    path = started.path
    yield path
    started.close()


@pytest.fixture
def store(daemon: str) -> Iterator[dissociated.store.Store]:
    """A connection to it; nothing is left there afterwards, and nothing on lease."""
    with dissociated.store.connect(daemon) as connected:
        yield connected
        for row in connected.list():
            connected.delete(row.name)

        def is_free() -> bool:
            gc.collect()
            usage = connected.usage()
            return usage["leases"] == 0 and usage["used"] == 0

        assert wait_until(is_free), connected.usage()


@pytest.fixture
def own_server() -> Iterator[ServerProcess]:
    """A server that the test may kill."""
    started = ServerProcess(str(HERE / "serving.py"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> standin.StandIn:
    """The stand-in driver, which is this process's from then on."""
    library, reason = standin.build()
    if library is None:
        pytest.skip(reason)
    pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    found = standin.StandIn(library, tmp_path_factory.mktemp("standin"))
    os.environ.update(found.environment)
    assert _cuda.unavailable() is None
    # Others' child processes are without; the rest is read whenever the driver is called.
    del os.environ[_cuda.LIBRARY_VARIABLE]
    start_keeper()
    return found


@pytest.fixture
def cuda(driver: standin.StandIn) -> Iterator[standin.StandIn]:
    """The driver for one test, which leaves no memory and no import and breaks no rule."""
    before = driver.live()
    seen = len(driver.violations())
    yield driver

    def is_clean() -> bool:
        gc.collect()
        return driver.live() == before

    assert wait_until(is_clean), f"left over: {driver.live()} before: {before}"
    assert driver.violations()[seen:] == []


@pytest.fixture(scope="session")
def cuda_server(
    driver: standin.StandIn, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[standin.CudaServer]:
    """A daemon of Java's that brings its files to a device for those who ask for them there."""
    folder = tmp_path_factory.mktemp("served")
    words = ["--transports", "shm,cuda"]
    for number, (name, table) in enumerate(data.for_devices().items()):
        path = folder / f"{number}.arrow"
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
        words.append(f"{name}={path}")
    try:
        started = standin.CudaServer(driver.environment, *words)
    except DissociatedError as e:
        required = os.environ.get("DISSOCIATED_REQUIRE", "").split(",")
        if e.code is not Code.NOT_FOUND or "python" in required:
            raise
        pytest.skip(e.message)
    yield started
    started.stop()


def targets(server: ServerProcess | dissociated.Server) -> dict[str, tuple[str, dict[str, str]]]:
    """Every way to reach a server's shared memory."""
    return {
        "socket": (server.socket, {}),
        "inline": (server.uri, {"via": "shm", "metadata": "inline"}),
        "flight": (server.uri, {"via": "shm", "metadata": "flight"}),
    }


@pytest.fixture(params=["socket", "inline", "flight"])
def client(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[dissociated.Client]:
    """A client by each of the ways."""
    target, options = targets(server)[request.param]
    with dissociated.connect(target, **options) as connected:
        yield connected
