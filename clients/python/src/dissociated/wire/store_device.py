"""What the store's messages say of memory of devices, see format-docs/store-protocol.md."""

from __future__ import annotations

import struct
import uuid
from typing import Any, NamedTuple

from ..errors import violation
from .cuda import HANDLE_LENGTH, DeviceMemory

ANY_DEVICE = str(uuid.UUID(int=0))
"""Stands for the daemon's first device in ALLOCATE."""

_MAX_ARENA = (1 << 24) - 1
_MAX_SIZE = 1 << 40
_ARENA = struct.Struct(f"<QQ16sQ{HANDLE_LENGTH}s")
_DEVICE_USE = struct.Struct("<16s4Q")
_ROW = struct.Struct("<16sQ")


class ArenaInfo(NamedTuple):
    """One allocation of the daemon's, as one connection knows it."""

    number: int
    offset: int
    """Where what this client may fill begins, of an arena that it has allocated."""
    memory: DeviceMemory
    size: int


def require_arena(number: int) -> int:
    """The number, if it can be that of an arena."""
    if not 1 <= number <= _MAX_ARENA:
        raise violation(f"store message refused: arena out of range, arena={number}")
    return number


def device_bytes(device: str) -> bytes:
    """A device's UUID as messages carry it."""
    return uuid.UUID(device).bytes


def parse_arena(message: Any) -> ArenaInfo:
    """What ALLOCATED and ARENA say; the latter answers nothing."""
    number = require_arena(message.a)
    if len(message.payload) != _ARENA.size:
        raise violation(f"arena refused: its length, length={len(message.payload)}")
    process, allocation, device, size, handle = _ARENA.unpack(message.payload)
    if not 1 <= size <= _MAX_SIZE or message.b >= size:
        raise violation(f"arena refused: its size, size={size} offset={message.b}")
    memory = DeviceMemory(f"{process:016x}.{allocation}", str(uuid.UUID(bytes=device)), handle)
    return ArenaInfo(number, message.b, memory, size)


def parse_row(payload: bytes, at: int) -> tuple[int, tuple[str, int]]:
    """The end of a row that is on a device: where the next begins, the device, and bytes there."""
    if len(payload) - at < _ROW.size:
        raise violation("rows refused: one is cut")
    device, size = _ROW.unpack_from(payload, at)
    return at + _ROW.size, (str(uuid.UUID(bytes=device)), size)


def parse_devices(payload: bytes) -> list[dict[str, object]]:
    """The devices of USED."""
    if len(payload) % _DEVICE_USE.size:
        raise violation("usage refused: its length")
    fields = ("device", "limit", "used", "going", "objects")
    return [
        dict(zip(fields, (str(uuid.UUID(bytes=device)), *numbers)))
        for device, *numbers in _DEVICE_USE.iter_unpack(payload)
    ]
