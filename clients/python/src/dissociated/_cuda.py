"""The CUDA driver, through the package cuda-bindings where that is installed.

Everything here can be called without CUDA, and says "CUDA not available: " and why.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import threading
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

from .errors import Code, DissociatedError
from .wire.cuda import HANDLE_LENGTH

LIBRARY_VARIABLE = "DISSOCIATED_CUDA_LIBRARY"
"""Names the driver's library, where it is not the one that the linker finds."""

_LIBRARY = "libcuda.so.1"
_OLDEST = 11000  # the first driver that can say whether memory has an IPC handle
_NON_BLOCKING = 1
_LAZY_ENABLE_PEER_ACCESS = 1
_NAME_LENGTH = 128
_FUNCTIONS = (
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetUuid",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuPointerGetAttribute",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuEventDestroy_v2",
    "cuEventSynchronize",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuIpcOpenEventHandle",
)


class _Probe(NamedTuple):
    """What was found when the driver was looked for."""

    failure: Optional[str]
    version: int = 0
    devices: int = 0


_lock = threading.Lock()
_probed: Optional[_Probe] = None
_library: Any = None
_driver: Any = None
_devices: dict[int, CudaDevice] = {}


def unavailable() -> Optional[str]:
    """Why CUDA cannot be used in this process; None when it can. Never raises."""
    return _result().failure


def require() -> None:
    """Raises UNSUPPORTED, "CUDA not available: " and the reason, where CUDA cannot be used."""
    reason = unavailable()
    if reason is not None:
        raise DissociatedError(Code.UNSUPPORTED, f"CUDA not available: {reason}")


def device(ordinal: int) -> CudaDevice:
    """The device of that number, as the driver counts them: always the same object."""
    require()
    count = _result().devices
    if not 0 <= ordinal < count:
        raise DissociatedError(
            Code.INVALID_ARGUMENT, f"no such device, device={ordinal} devices={count}"
        )
    with _lock:
        if ordinal not in _devices:
            _devices[ordinal] = CudaDevice(ordinal)
        return _devices[ordinal]


def device_of(identity: str) -> Optional[CudaDevice]:
    """The device of that UUID; None where this process does not see it."""
    require()
    for ordinal in range(_result().devices):
        found = device(ordinal)
        if found.uuid == identity:
            return found
    return None


# ---- looking for it


def _result() -> _Probe:
    global _probed
    with _lock:
        if _probed is None:
            try:
                _probed = _look()
            except Exception as e:  # whatever a driver or a package may do
                _probed = _Probe(f"the driver does not load: {_first_line(e)}")
        return _probed


def _look() -> _Probe:
    global _library, _driver
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "amd64"):
        return _Probe(f"it needs Linux on amd64, this is {system} on {machine}")
    named = os.environ.get(LIBRARY_VARIABLE)
    try:
        # For everybody in this process: cuda-bindings then finds this one under its usual name.
        path = os.path.abspath(named) if named else _LIBRARY
        _library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as e:
        if named:
            return _Probe(f"the library named does not load: {_first_line(e)}, library={named}")
        return _Probe(f"no driver is installed: {_LIBRARY} was not found")
    for function in _FUNCTIONS:
        if not hasattr(_library, function):
            return _Probe(f"the driver is too old, it lacks {function}")
    try:
        from cuda.bindings import driver
    except ImportError as e:
        return _Probe(
            "the package cuda-bindings is missing, install dissociated[cuda]: " + _first_line(e)
        )
    _driver = driver
    return _ask()


def _ask() -> _Probe:
    version = ctypes.c_int()
    _library.cuDriverGetVersion(ctypes.byref(version))
    code = _library.cuInit(0)
    if code:
        return _Probe(f"the driver does not start: {_name(code)}")
    if version.value < _OLDEST:
        return _Probe(f"the driver is too old, version={version.value} needed={_OLDEST}")
    count = ctypes.c_int()
    code = _library.cuDeviceGetCount(ctypes.byref(count))
    if code or count.value < 1:
        return _Probe(f"the driver has no device: {_name(code)}")
    return _Probe(None, version.value, count.value)


def _name(code: int) -> str:
    try:
        return _driver.CUresult(code).name
    except ValueError:
        return f"error {code}"


def _first_line(failure: BaseException) -> str:
    return (str(failure) or type(failure).__name__).splitlines()[0]


# ---- calling it


def _call(function: str, *arguments: Any, why: str = "") -> Any:
    """Calls a function of the driver; its one result, if it has any."""
    code, *values = getattr(_driver, function)(*arguments)
    if int(code):
        raise DissociatedError(_code(int(code)), f"{function} failed: {_name(int(code))}{why}")
    return values[0] if values else None


def _code(result: int) -> Code:
    names = _driver.CUresult
    if result == names.CUDA_ERROR_OUT_OF_MEMORY:
        return Code.RESOURCE_EXHAUSTED
    if result == names.CUDA_ERROR_INVALID_DEVICE:
        return Code.INVALID_ARGUMENT
    if result in (names.CUDA_ERROR_NOT_SUPPORTED, names.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED):
        return Code.UNSUPPORTED
    return Code.INTERNAL


class CudaDevice:
    """A GPU, used through its primary context, which this process's other libraries use, too.

    The context is retained when first needed and stays. Thread-safe.
    """

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        """The device's number in this process; another process may count otherwise."""
        self._device = _call("cuDeviceGet", ordinal)
        name: bytes = _call("cuDeviceGetName", _NAME_LENGTH, self._device)
        self.name = name.partition(b"\0")[0].decode("utf-8", "replace")
        # By the library itself: newer bindings tell another number of a part of a device.
        identity = (ctypes.c_char * 16)()
        code = _library.cuDeviceGetUuid(identity, ctypes.c_int(int(self._device)))
        if code:
            raise DissociatedError(_code(code), f"cuDeviceGetUuid failed: {_name(code)}")
        self.uuid = str(uuid.UUID(bytes=identity.raw))
        """Which device it is, whoever asks."""
        self._lock = threading.Lock()
        self._context: Any = None
        self._copies: Any = None

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes the context current on this thread; what was so before is so again afterwards."""
        require()  # not in a forked child, whose parent's driver this is
        with self._lock:
            if self._context is None:
                self._context = _call("cuDevicePrimaryCtxRetain", self._device)
        _call("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            _call("cuCtxPopCurrent")

    def _stream(self) -> Any:
        """The stream for copies that are waited for at once; the context is current."""
        with self._lock:
            if self._copies is None:
                self._copies = _call("cuStreamCreate", _NON_BLOCKING)
            return self._copies

    # ---- memory

    def allocate(self, size: int) -> int:
        """The address of new memory."""
        with self.current():
            return int(_call("cuMemAlloc", size, why=f", bytes={size}"))

    def free(self, address: int) -> None:
        """Gives memory back; nothing on the device may use it any longer."""
        with self.current():
            _call("cuMemFree", address)

    def to_device(self, copies: list[tuple[int, int, int]]) -> None:
        """Copies from host memory (target, source and length of each) and waits for it."""
        self._copy("cuMemcpyHtoDAsync", copies)

    def to_host(self, copies: list[tuple[int, int, int]]) -> None:
        """Copies to host memory (target, source and length of each) and waits for it."""
        self._copy("cuMemcpyDtoHAsync", copies)

    def within(self, copies: list[tuple[int, int, int]]) -> None:
        """Copies on the device (target, source and length of each) and waits for it."""
        self._copy("cuMemcpyDtoDAsync", copies)

    def _copy(self, function: str, copies: list[tuple[int, int, int]]) -> None:
        with self.current():
            stream = self._stream()
            try:
                for target, source, length in copies:
                    if length:
                        _call(function, target, source, length, stream, why=f", bytes={length}")
            finally:  # what has begun must not go on when this has returned
                _call("cuStreamSynchronize", stream)

    def clear(self, ranges: list[tuple[int, int]]) -> None:
        """Writes zeros (address and length of each) and waits for it."""
        with self.current():
            stream = self._stream()
            for address, length in ranges:
                if length:
                    _call("cuMemsetD8Async", address, 0, length, stream, why=f", bytes={length}")
            _call("cuStreamSynchronize", stream)

    def synchronize(self, streams: tuple[int, ...] = ()) -> None:
        """Waits for those streams; without any, for all that this process does on the device."""
        with self.current():
            if not streams:
                _call("cuCtxSynchronize")
            for stream in streams:
                _call("cuStreamSynchronize", stream)

    # ---- memory of other processes

    def open(self, handle: bytes, event: Optional[bytes] = None) -> tuple[int, int]:
        """Opens memory by its handle: where it begins, and bytes from there on."""
        with self.current():
            opened = _handle(_driver.CUipcMemHandle(), handle)
            address = int(_call("cuIpcOpenMemHandle", opened, _LAZY_ENABLE_PEER_ACCESS))
            try:
                if event is not None:
                    self._wait_for(event)
                start = int(_attribute("RANGE_START_ADDR", address))
                size = int(_attribute("RANGE_SIZE", address))
                return address, size - (address - start)
            except BaseException:
                _call("cuIpcCloseMemHandle", address)
                raise

    def _wait_for(self, handle: bytes) -> None:
        event = _call("cuIpcOpenEventHandle", _handle(_driver.CUipcEventHandle(), handle))
        try:
            _call("cuEventSynchronize", event)
        finally:
            _call("cuEventDestroy", event)

    def close(self, address: int) -> None:
        """Closes what was opened."""
        with self.current():
            _call("cuIpcCloseMemHandle", address)

    def __str__(self) -> str:
        return f"device {self.ordinal}: {self.name}, GPU-{self.uuid}"


def device_at(address: int) -> CudaDevice:
    """The device in whose memory an address lies."""
    require()
    try:
        with device(0).current():
            ordinal = int(_attribute("DEVICE_ORDINAL", address))
    except DissociatedError as e:
        raise DissociatedError(
            Code.INVALID_ARGUMENT, f"not memory of a device: {e.message}, address={address:#x}"
        ) from e
    return device(ordinal)


def _attribute(name: str, address: int) -> Any:
    attribute = getattr(_driver.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}")
    return _call("cuPointerGetAttribute", attribute, address, why=f", address={address:#x}")


def _handle(empty: Any, contents: bytes) -> Any:
    """A handle with these contents: bindings before 13 name the field, later ones do not."""
    if len(contents) != HANDLE_LENGTH:
        raise DissociatedError(
            Code.INVALID_ARGUMENT, f"not a handle of {HANDLE_LENGTH} bytes, length={len(contents)}"
        )
    ctypes.memmove(int(empty.getPtr()), contents, HANDLE_LENGTH)
    return empty


def _after_fork() -> None:
    """A driver that was started before a fork does not work in the child."""
    global _lock, _probed
    _lock = threading.Lock()
    if _probed is not None and _probed.failure is None:
        _probed = _Probe("this process was forked from one that uses it; spawn it instead")


os.register_at_fork(after_in_child=_after_fork)
