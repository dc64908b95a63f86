"""The frames of the shared-memory transport's Unix socket.

::

     0             8          16     17         24
    +-------------+----------+------+----------+----------- - - -
    | length u64  | tag u64  | kind | 7 zeroes | payload
    +-------------+----------+------+----------+----------- - - -

The tag is 0 in every frame that is not TAGGED. A SEGMENT frame starts a ``sendmsg`` of its own
that carries exactly one descriptor.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from typing import NamedTuple

from ..errors import Code, DissociatedError, violation

FRAME_HEADER = struct.Struct("<QQQ")
"""Length, tag, and kind together with its seven zero bytes."""
HEADER_LENGTH = FRAME_HEADER.size
MAX_SHORT_PAYLOAD = 256 << 20
"""Most bytes of any payload that is not a packed body."""
MAX_ERROR_TEXT = 16 << 10
MAX_SEGMENT_ID = (1 << 24) - 1
OFFSET_BITS = 40

_MAX_I32 = (1 << 31) - 1
_MAX_I64 = (1 << 63) - 1
_MAGIC = b"DIPC"
_VERSION = 1
_HELLO = struct.Struct("<4sHH16s16sQQII")
_SEGMENT = struct.Struct("<QQ")
_SUMMARY = struct.Struct("<QQQ")
_ERROR_CODE = struct.Struct("<I")


class Kind(enum.IntEnum):
    """What a frame carries."""

    HELLO = 1
    UNTAGGED = 2
    TAGGED = 3
    SEGMENT = 4
    ERROR = 5
    HEARTBEAT = 6
    SUMMARY = 7


# Shortest and longest payload of each kind; TAGGED is checked by whoever knows what it carries.
_LIMITS = {
    Kind.HELLO: (_HELLO.size, _HELLO.size),
    Kind.UNTAGGED: (0, MAX_SHORT_PAYLOAD),
    Kind.TAGGED: (0, (1 << 63) - 1),
    Kind.SEGMENT: (_SEGMENT.size, _SEGMENT.size),
    Kind.ERROR: (_ERROR_CODE.size, _ERROR_CODE.size + MAX_ERROR_TEXT),
    Kind.HEARTBEAT: (0, 0),
    Kind.SUMMARY: (_SUMMARY.size, _SUMMARY.size),
}


def header(kind: int, length: int, tag: int = 0) -> bytes:
    """A frame header."""
    return FRAME_HEADER.pack(length, tag, kind)


def frame(kind: int, payload: bytes = b"", tag: int = 0) -> bytes:
    """A whole frame."""
    return FRAME_HEADER.pack(len(payload), tag, kind) + payload


def check_header(length: int, tag: int, kind: int) -> Kind:
    """Checks the three integers of a header before anything is allocated for its payload."""
    if not Kind.HELLO <= kind <= Kind.SUMMARY:
        raise violation(
            "frame refused: unknown kind or reserved bytes set, "
            f"kind={kind & 0xFF} reserved={kind >> 8:#x}"
        )
    known = Kind(kind)
    low, high = _LIMITS[known]
    if not low <= length <= high:
        raise violation(f"frame refused: length out of range, kind={known.name} length={length}")
    if tag and known is not Kind.TAGGED:
        raise violation(f"frame refused: tag on an untagged frame, kind={known.name} tag={tag:#x}")
    return known


class Hello(NamedTuple):
    """The server's first frame: which server this is, and the tags it listens to."""

    nonce: bytes
    segment_set: bytes
    want_data: int
    free_data: int
    heartbeat_ms: int

    def encode(self) -> bytes:
        """The payload."""
        return _HELLO.pack(
            _MAGIC,
            _VERSION,
            0,
            self.nonce,
            self.segment_set,
            self.want_data,
            self.free_data,
            self.heartbeat_ms,
            0,
        )

    @classmethod
    def parse(cls, payload: bytes) -> Hello:
        """Reads the payload of a HELLO frame."""
        if len(payload) != _HELLO.size:
            raise violation(f"hello refused: wrong length, length={len(payload)}")
        fields = _HELLO.unpack(payload)
        magic, version, zero, nonce, segment_set, want, free, interval, last = fields
        if magic != _MAGIC:
            raise violation(f"hello refused: wrong magic, magic={magic.hex()}")
        if version != _VERSION:
            raise DissociatedError(
                Code.UNSUPPORTED, f"hello refused: unknown version, version={version}"
            )
        if zero or last:
            raise violation("hello refused: reserved bytes are set")
        if not 1 <= interval <= _MAX_I32:
            raise violation(f"hello refused: heartbeat out of range, heartbeat_ms={interval}")
        return cls(nonce, segment_set, want, free, interval)

    def host(self, boot_id: str) -> str:
        """The ``host`` parameter of a location on the host with that boot id."""
        return hashlib.sha256(boot_id.strip().encode("ascii") + self.nonce).hexdigest()[:32]


class Summary(NamedTuple):
    """The server's account of a stream, just before its end."""

    batches: int
    body_bytes: int
    copied_bytes: int

    def encode(self) -> bytes:
        """The payload."""
        return _SUMMARY.pack(*self)

    @classmethod
    def parse(cls, payload: bytes) -> Summary:
        """Reads the payload of a SUMMARY frame."""
        if len(payload) != _SUMMARY.size:
            raise violation(f"summary refused: wrong length, length={len(payload)}")
        summary = cls(*_SUMMARY.unpack(payload))
        if max(summary) > _MAX_I64:
            raise violation(f"summary refused: out of range, {summary}")
        return summary


def segment_frame(segment: int, size: int) -> bytes:
    """The frame that announces a segment; its descriptor travels with it."""
    return frame(Kind.SEGMENT, _SEGMENT.pack(segment, size))


def parse_segment(payload: bytes) -> tuple[int, int]:
    """Segment id and size of a SEGMENT frame."""
    if len(payload) != _SEGMENT.size:
        raise violation(f"segment refused: wrong length, length={len(payload)}")
    segment, size = _SEGMENT.unpack(payload)
    if not 1 <= segment <= MAX_SEGMENT_ID or not 1 <= size <= 1 << OFFSET_BITS:
        raise violation(f"segment refused: out of range, segment={segment} size={size}")
    return segment, size


def encode_error(code: int, text: str) -> bytes:
    """The payload of an ERROR frame; a text that is too long is cut."""
    cut = text.encode("utf-8", "replace")[:MAX_ERROR_TEXT].decode("utf-8", "ignore")
    return _ERROR_CODE.pack(code) + cut.encode("utf-8")


def parse_error(payload: bytes) -> DissociatedError:
    """What the peer says has failed."""
    if not _ERROR_CODE.size <= len(payload) <= _ERROR_CODE.size + MAX_ERROR_TEXT:
        raise violation(f"error frame refused: wrong length, length={len(payload)}")
    (number,) = _ERROR_CODE.unpack_from(payload)
    return DissociatedError(Code.of(number), payload[_ERROR_CODE.size :].decode("utf-8", "replace"))
