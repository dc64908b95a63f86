"""The stand-in driver of tests/standin-cuda, built when first needed, and what it has seen."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

import dissociated
from dissociated import _cuda
from dissociated._daemon import _launcher
from dissociated.wire.cuda import DeviceMemory

SOURCES = Path(__file__).resolve().parents[3] / "tests" / "standin-cuda"
_RECORD = 64
_NAME = 56
_OPTIONS = ("-std=gnu17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
_OPTIONS += ("-fvisibility=hidden", "-Wl,-soname,libcuda.so.1")


@functools.cache
def build() -> tuple[Path | None, str]:
    """The library, or why there is none."""
    if not SOURCES.is_dir():
        return None, f"no stand-in driver in this checkout: {SOURCES}"
    folder = Path(tempfile.mkdtemp(prefix="standin-cuda-"))
    library = folder / "libcuda.so.1"
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    command = ["gcc", *_OPTIONS, "-o", str(library), *sources, "-lpthread", "-ldl"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except OSError as e:
        return None, f"no C compiler for the stand-in driver: {e}"
    assert done.returncode == 0, done.stderr
    return library, ""


class StandIn:
    """The driver of this process and of those that it starts with :attr:`environment`."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            _cuda.LIBRARY_VARIABLE: str(library),
            "STANDIN_CUDA_DIR": str(folder),
            "STANDIN_CUDA_DELAY_US": "200",
        }

    def counters(self, process: int = 0) -> dict[str, int]:
        """Calls by function, and what is ``live.``, of a process, dead or alive."""
        path = self.folder / f"calls.{process or os.getpid()}"
        data = path.read_bytes() if path.exists() else b""
        found = {}
        for at in range(0, len(data), _RECORD):
            name = data[at : at + _NAME].partition(b"\0")[0].decode()
            if name:
                found[name] = int.from_bytes(data[at + _NAME : at + _RECORD], "little")
        return found

    def count(self, name: str, process: int = 0) -> int:
        """One counter; 0 for one that is not there."""
        return self.counters(process).get(name, 0)

    def violations(self) -> list[str]:
        """What the driver leaves undefined and somebody did."""
        path = self.folder / "violations"
        return path.read_text("utf-8").splitlines() if path.exists() else []

    def live(self, process: int = 0) -> dict[str, int]:
        """Memory and imports that a process has."""
        names = ("live.imports", "live.allocations")
        return {name: self.count(name, process) for name in names}


class Memory:
    """Memory on the device, made by the driver alone; for what other libraries would bring."""

    def __init__(self, contents: bytes, shape: tuple[int, ...], typestr: str) -> None:
        self.device = _cuda.device(0)
        self.address = self.device.allocate(max(1, len(contents)))
        buffer = ctypes.create_string_buffer(contents, len(contents))
        self.device.to_device([(self.address, ctypes.addressof(buffer), len(contents))])
        self.length = len(contents)
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": shape,
            "typestr": typestr,
            "data": (self.address, False),
            "version": 3,
        }

    def close(self) -> None:
        self.device.free(self.address)


def read(address: int, length: int) -> bytes:
    """Bytes of a device's memory."""
    buffer = ctypes.create_string_buffer(max(1, length))
    _cuda.device(0).to_host([(ctypes.addressof(buffer), address, length)])
    return buffer.raw[:length]


EXPORTER = """
    import ctypes, os, sys
    library = ctypes.CDLL(os.environ["DISSOCIATED_CUDA_LIBRARY"])
    contents = bytes.fromhex(sys.argv[1])
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    handle = (ctypes.c_char * 64)()
    assert library.cuInit(0) == 0
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert library.cuCtxPushCurrent_v2(context) == 0
    assert library.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(2 << 20)) == 0
    assert library.cuMemcpyHtoD_v2(address, contents, ctypes.c_size_t(len(contents))) == 0
    assert library.cuIpcGetMemHandle(handle, address) == 0
    print(handle.raw.hex(), flush=True)
    sys.stdin.read()
    assert library.cuMemFree_v2(address) == 0
"""
SIZE = 2 << 20
"""Bytes of an exporter's allocation."""
UUID = "5354414e-4449-4e2d-4355-44412d303030"
_exporters = itertools.count(1)


class Exporter:
    """A process that shows 2 MiB of device memory until it is closed or killed."""

    def __init__(self, standin: StandIn, contents: bytes) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(EXPORTER), contents.hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **standin.environment},
        )
        assert self.process.stdout is not None
        handle = bytes.fromhex(self.process.stdout.readline())
        name = f"{self.process.pid:016x}.{next(_exporters)}"
        self.memory = DeviceMemory(name, UUID, handle)

    def __enter__(self) -> Exporter:
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class CudaServer:
    """``dissociated serve`` in a process of its own, with a device or without."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        self.process = subprocess.Popen(
            [_launcher(), "serve", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server did not start"
        self.ready: dict[str, Any] = json.loads(line)
        self.uri: str = self.ready["flight"]
        self.socket: str = self.ready["socket"]

    def leases(self) -> int:
        with dissociated.connect(self.uri) as client:
            return sum(stream["leases"] for stream in client.stat()["streams"])

    def stop(self) -> None:
        assert self.process.stdout is not None
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.stdout.close()


def import_numba() -> Any:
    """The package numba-cuda, which is large, and needs the CUDA runtime only to be imported."""
    try:
        from numba import cuda
    except Exception as e:
        pytest.skip(f"numba-cuda is not installed, or not whole: {e}")
    return cuda
