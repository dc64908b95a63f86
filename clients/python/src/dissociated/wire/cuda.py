"""What a location of the scheme ``cuda`` says of memory, see format-docs/cuda-mapping.md."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from ..errors import Code, DissociatedError
from .uri import DissociatedUri

CUDA_SCHEME = "cuda"
HANDLE_LENGTH = 64
"""Bytes of a CUDA IPC handle, of memory and of events."""

_CARRIER = "shm"
_OWN = ("remote_handle", "exporter", "device", "event")
_EXPORTER = re.compile(r"[0-9a-f]{16}\.[0-9]{1,19}", re.ASCII)
_DEVICE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


def is_exporter(text: str) -> bool:
    """Whether a text is of the form of an exporter's name: PROCESS.ALLOCATION."""
    return _EXPORTER.fullmatch(text) is not None


class DeviceMemory(NamedTuple):
    """Memory of a GPU that a process shows to others."""

    exporter: str
    """Which allocation of which process: never used again, unlike handles and addresses."""
    device: str
    """The device's UUID."""
    handle: Optional[bytes] = None
    """Opens the allocation that addresses are offsets into; None where they are absolute."""
    event: Optional[bytes] = None
    """What to wait for before the memory is read; None when it is there already."""


class CudaLocation(NamedTuple):
    """A location in a GPU's memory: the memory, and how the messages come."""

    carrier: DissociatedUri
    """The same server by the socket that carries the messages."""
    memory: Optional[DeviceMemory]
    """None of a listener whose stream lies in host memory."""

    @classmethod
    def parse(cls, text: str) -> CudaLocation:
        """Reads a location, or raises INVALID_ARGUMENT."""
        uri = DissociatedUri.parse(text)
        if uri.scheme != CUDA_SCHEME or uri.authority or not uri.path:
            raise _refused(uri, "not of the form cuda:///path")
        rest = {name: value for name, value in uri.parameters.items() if name not in _OWN}
        carrier = DissociatedUri(_CARRIER, "", uri.path, rest)
        return cls(carrier, _memory(uri))


def _memory(uri: DissociatedUri) -> Optional[DeviceMemory]:
    if not any(name in uri.parameters for name in _OWN):
        return None
    exporter = uri.parameters.get("exporter", "")
    device = uri.parameters.get("device", "")
    handle, event = uri.remote_handle, uri.binary("event")
    if not is_exporter(exporter):
        raise _refused(uri, "exporter is not PROCESS.ALLOCATION")
    if not _DEVICE.fullmatch(device):
        raise _refused(uri, "device is not a UUID")
    for name, value in (("remote_handle", handle), ("event", event)):
        if value is not None and len(value) != HANDLE_LENGTH:
            raise _refused(uri, f"{name} is not of {HANDLE_LENGTH} bytes")
    return DeviceMemory(exporter, device, handle, event)


def _refused(uri: DissociatedUri, why: str) -> DissociatedError:
    return DissociatedError(Code.INVALID_ARGUMENT, f"location refused: {why}, uri={uri}")
