"""The messages of the store, see format-docs/store-protocol.md."""

from __future__ import annotations

import enum
import re
import struct
from typing import NamedTuple, Optional

from ..errors import Code, DissociatedError, violation
from .frame import OFFSET_BITS, Kind
from .store_device import parse_devices, parse_row, require_arena

STORE_TAG = 3 << 32
STORE_VERSIONS = (2, 1)
"""What is asked for, the best first; 2 knows of devices."""
FOR_EVER = (1 << 64) - 1
MAX_MESSAGE = 1 << 20
MAX_BUFFERS = 16_384
MAX_NAME = 1024

_HEADER = struct.Struct("<BBHIQQQ")
_FRAMED = struct.Struct("<QQQBBHIQQQ")  # with the header of the frame before it
_BUFFER = struct.Struct("<IIQQ")
_ROW = struct.Struct("<BBHIQQQQ")
_USAGE = struct.Struct("<13Q")
_CLIENT = struct.Struct("<QIIQQQQ")

INLINE, SHARED, COPIED, DEVICE = 0, 1, 2, 3
REPLACE, PIN, UNPIN, SET_TTL, GONE = 1, 2, 4, 8, 16
_PINNED, _SPILLED, _ON_DEVICE = 1, 2, 4
_TAGGED = int(Kind.TAGGED)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Op(enum.IntEnum):
    """What a message is."""

    OPEN = 1
    PUT = 2
    GET = 3
    RELEASE = 4
    LIST = 5
    STAT = 6
    DELETE = 7
    CHANGE = 8
    SUBSCRIBE = 9
    USAGE = 10
    HIDDEN = 11
    CLAIM = 12
    TAKE = 13
    ALLOCATE = 14
    DROPPED = 15
    DONE = 64
    OPENED = 65
    OBJECT = 66
    ROWS = 67
    EVENT = 68
    USED = 69
    HIDE = 70
    FAILED = 71
    CLAIMED = 72
    ALLOCATED = 73
    ARENA = 74
    DROP = 75


_DAEMON_OPS = {int(op): op for op in Op if op >= Op.DONE}


class ObjectType(enum.IntEnum):
    """What the buffers of an object mean."""

    BYTES = 1
    TABLE = 2
    TENSOR = 3
    PICKLE = 4


OBJECT_TYPES = {int(kind): kind for kind in ObjectType}


class ObjectInfo(NamedTuple):
    """What the store knows of an object."""

    name: str
    type: ObjectType
    pinned: bool
    spilled: bool
    user: int
    bytes: int
    leases: int
    age_ms: int
    ttl_ms: int
    device: Optional[str] = None
    """UUID of the GPU in whose memory it lies, if it does."""
    device_bytes: int = 0
    """Of all bytes, those that lie there."""


class StoreMessage(NamedTuple):
    """One message of the daemon's, checked as far as its header goes."""

    op: Op
    type: int
    flags: int
    name: str
    request: int
    a: int
    b: int
    payload: bytes

    def buffers(self) -> list[tuple[int, int, int]]:
        """Segment, offset and length of each buffer of an OBJECT; minus the arena of one that lies
        in a device's memory.
        """
        if len(self.payload) != self.b * _BUFFER.size or self.b > MAX_BUFFERS:
            raise violation(f"object refused: count of buffers, count={self.b}")
        found = []
        for kind, reserved, address, length in _BUFFER.iter_unpack(self.payload):
            if kind not in (SHARED, DEVICE):
                raise DissociatedError(
                    Code.UNSUPPORTED, f"buffer refused: memory of a kind not known, kind={kind}"
                )
            if reserved or length >= 1 << OFFSET_BITS:
                raise violation(f"buffer refused: length={length}")
            number = address >> OFFSET_BITS
            if kind == DEVICE:
                number = -require_arena(number)
            found.append((number, address & (1 << OFFSET_BITS) - 1, length))
        return found

    def rows(self) -> list[ObjectInfo]:
        """The rows of ROWS."""
        rows, at = [], 0
        for _ in range(self.b):
            if len(self.payload) - at < _ROW.size:
                raise violation("rows refused: one is cut")
            kind, marks, length, user, *counts = _ROW.unpack_from(self.payload, at)
            at += _ROW.size
            name = self.payload[at : at + length]
            at += length
            if len(name) != length:
                raise violation("rows refused: a name is cut")
            pinned, spilled = bool(marks & _PINNED), bool(marks & _SPILLED)
            on_device: tuple = ()
            if marks & _ON_DEVICE:
                at, on_device = parse_row(self.payload, at)
            rows.append(
                ObjectInfo(
                    name.decode(), ObjectType(kind), pinned, spilled, user, *counts, *on_device
                )
            )
        return rows

    def usage(self) -> dict[str, object]:
        """The numbers of USED."""
        devices = _USAGE.size + self.b * _CLIENT.size
        if len(self.payload) < devices:
            raise violation("usage refused: its length")
        names = (
            "limit reserved used pooled going objects bytes leases leased_bytes evicted "
            "spilled_objects spilled_bytes leaving_bytes"
        )
        usage: dict[str, object] = dict(zip(names.split(), _USAGE.unpack_from(self.payload)))
        fields = "client user process leases leased_bytes put_bytes spilled_bytes".split()
        usage["clients"] = [
            dict(zip(fields, row))
            for row in _CLIENT.iter_unpack(self.payload[_USAGE.size : devices])
        ]
        usage["devices"] = parse_devices(self.payload[devices:])
        return usage

    def failure(self) -> DissociatedError:
        """Why a request FAILED."""
        return DissociatedError(Code.of(self.a), self.payload.decode(errors="replace"))


def check_name(name: str) -> bytes:
    """The name's bytes, if it is one."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError as e:
        raise _refused_name("it is not Unicode text") from e
    if not encoded or len(encoded) > MAX_NAME:
        raise _refused_name(f"its length, bytes={len(encoded)}")
    if name[0] in "$/" or name[-1] == "/" or _CONTROL.search(name):
        raise _refused_name(f"name={name!r}")
    return encoded


def _refused_name(why: str) -> DissociatedError:
    return DissociatedError(Code.INVALID_ARGUMENT, f"name refused: {why}")


def store_frame(
    op: Op,
    request: int = 0,
    name: bytes = b"",
    a: int = 0,
    b: int = 0,
    payload: bytes = b"",
    kind: int = 0,
    flags: int = 0,
) -> bytes:
    """A message in its frame."""
    length = len(name)
    whole = _HEADER.size + length + len(payload)
    header = _FRAMED.pack(whole, STORE_TAG, _TAGGED, op, kind, flags, length, request, a, b)
    return header + name + payload


def buffer_entry(kind: int, address: int, length: int) -> bytes:
    """One buffer of a PUT."""
    return _BUFFER.pack(kind, 0, address, length)


def parse_store_message(data: bytes) -> StoreMessage:
    """A message of the daemon's."""
    if len(data) < _HEADER.size:
        raise violation(f"store message refused: it is cut, length={len(data)}")
    op, kind, flags, length, request, a, b = _HEADER.unpack_from(data)
    known = _DAEMON_OPS.get(op)
    begin = _HEADER.size + length
    if begin > len(data) or known is None:
        raise violation(f"store message refused: op={op} name length={length}")
    if known in (Op.ARENA, Op.DROP) and (request or length):
        raise violation(f"store message refused: nobody asked for it, op={op} request={request}")
    name = data[_HEADER.size : begin].decode() if length else ""
    return StoreMessage(known, kind, flags, name, request, a, b, data[begin:])
