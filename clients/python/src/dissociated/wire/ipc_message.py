"""Reading and re-addressing the flatbuffer of an IPC message, without a flatbuffers library.

Only the fields that a consumer needs before Arrow itself verifies the whole flatbuffer are read
here, each within the bounds of the message. Rewriting the ``Buffer`` structs lets Arrow take
buffers from where they lie instead of from a packed body.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import NamedTuple, Optional

from ..errors import violation
from .body import MAX_BUFFERS, u64s

NONE, SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = 0, 1, 2, 3
APP_METADATA = "dissociated.app_metadata"
"""The key under which a Flight message's app_metadata travels, base64."""

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")
_BUFFER_LENGTH = 16
_NODE_LENGTH = 16
_MAX_CUSTOM = 1 << 16


class _Layout(NamedTuple):
    """Where the fields of a message lie in its flatbuffer; a position of 0 is an absent field."""

    header_type: int
    body_length_at: int
    buffers_at: int
    buffer_count: int
    length_at: int
    nodes_at: int
    node_count: int
    custom_at: int
    compressed: bool


class IpcMessage:
    """One IPC message: what it is, how long its body is and where its buffers lie in that."""

    __slots__ = ("_layout", "flatbuffer", "has_body", "kind")

    def __init__(self, flatbuffer: bytes, layout: _Layout) -> None:
        self.flatbuffer = flatbuffer
        self._layout = layout
        self.kind = kind = layout.header_type
        self.has_body = kind >= DICTIONARY_BATCH
        """Whether a body belongs to it: to every batch and dictionary, even an empty one."""

    @property
    def body_length(self) -> int:
        """Bytes of the packed body, as the metadata says."""
        at = self._layout.body_length_at
        length: int = _I64.unpack_from(self.flatbuffer, at)[0] if at else 0
        if length < 0:
            raise violation(f"metadata message refused: negative body length, length={length}")
        return length

    @property
    def has_custom_metadata(self) -> bool:
        """Whether the producer attached any custom metadata."""
        return self._layout.custom_at != 0

    @property
    def is_compressed(self) -> bool:
        """Whether the buffers of its body are compressed."""
        return self._layout.compressed

    @property
    def buffer_count(self) -> int:
        """Buffers in the metadata, those without bytes included."""
        return self._layout.buffer_count

    def buffers(self) -> tuple[int, ...]:
        """Offset and length of each buffer in the packed body, alternating."""
        layout = self._layout
        return u64s(2 * layout.buffer_count).unpack_from(self.flatbuffer, layout.buffers_at)

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        at = self._layout.length_at
        rows: int = _I64.unpack_from(self.flatbuffer, at)[0] if at else 0
        if rows < 0:
            raise violation(f"metadata message refused: negative number of rows, rows={rows}")
        return rows

    def nodes(self) -> list[tuple[int, int]]:
        """Length and null count of every field, depth first."""
        layout = self._layout
        found = struct.Struct(f"<{2 * layout.node_count}q").unpack_from(
            self.flatbuffer, layout.nodes_at
        )
        if any(value < 0 for value in found):
            raise violation("metadata message refused: a node with a negative number")
        return list(zip(found[0::2], found[1::2]))

    def variadic_counts(self) -> tuple[int, ...]:
        """Data buffers of each field of views in a record batch."""
        return _Walker(self.flatbuffer).variadic_counts()

    def buffer_bytes(self) -> bytes:
        """What :meth:`buffers` reads, undecoded."""
        at = self._layout.buffers_at
        return bytes(self.flatbuffer[at : at + _BUFFER_LENGTH * self._layout.buffer_count])

    def has_buffer_bytes(self, expected: bytes) -> bool:
        """Whether the buffers are exactly these."""
        layout = self._layout
        if len(expected) != _BUFFER_LENGTH * layout.buffer_count:
            return False
        return self.flatbuffer.startswith(expected, layout.buffers_at)

    def relocated(self, pairs: bytes, body_length: int) -> bytearray:
        """The flatbuffer with other offsets and lengths, for a body of ``body_length`` bytes."""
        layout = self._layout
        if not layout.body_length_at:
            raise violation("metadata message refused: it has buffers but no body length")
        patched = bytearray(self.flatbuffer)
        at = layout.buffers_at
        patched[at : at + len(pairs)] = pairs
        _I64.pack_into(patched, layout.body_length_at, body_length)
        return patched

    def custom_metadata(self) -> dict[str, str]:
        """The message's custom metadata."""
        at = self._layout.custom_at
        if not at:
            return {}
        walker = _Walker(self.flatbuffer)
        result = {}
        count = walker.u32(at - 4)
        if count > _MAX_CUSTOM:
            raise violation(f"metadata message refused: custom metadata, entries={count}")
        for i in range(count):
            entry = walker.indirect(at + 4 * i)
            key, value = walker.field(entry, 0), walker.field(entry, 1)
            result[walker.text(key)] = walker.text(value)
        return result

    def app_metadata(self) -> Optional[bytes]:
        """The application metadata that a Flight producer attached to this message."""
        encoded = self.custom_metadata().get(APP_METADATA)
        if encoded is None:
            return None
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as e:
            raise violation(f"metadata message refused: {APP_METADATA} is not base64: {e}") from e


class _Walker:
    """Bounds-checked access to a flatbuffer's tables, vectors and strings."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._length = len(data)

    def _check(self, at: int, size: int) -> int:
        if at < 0 or size < 0 or at + size > self._length:
            raise violation(
                "metadata message refused: not an IPC flatbuffer, "
                f"position={at} length={self._length}"
            )
        return at

    def u32(self, at: int) -> int:
        return _U32.unpack_from(self._data, self._check(at, 4))[0]

    def indirect(self, at: int) -> int:
        return self._check(at + self.u32(at), 4)

    def field(self, table: int, index: int) -> int:
        """Position of a field of a table, or 0 when it is absent."""
        data = self._data
        vtable = table - _I32.unpack_from(data, self._check(table, 4))[0]
        size = _U16.unpack_from(data, self._check(vtable, 4))[0]
        slot = 4 + 2 * index
        if slot + 2 > size:
            return 0
        offset = _U16.unpack_from(data, self._check(vtable + slot, 2))[0]
        return self._check(table + offset, 1) if offset else 0

    def vector(self, field: int, item: int, most: int) -> tuple[int, int]:
        """Position of the first item and number of items; (0, 0) when the field is absent."""
        if not field:
            return 0, 0
        at = self.indirect(field)
        count = self.u32(at)
        if count > most:
            raise violation(f"metadata message refused: vector too long, count={count}")
        self._check(at + 4, count * item)
        return at + 4, count

    def text(self, field: int) -> str:
        at, count = self.vector(field, 1, self._length)
        return bytes(self._data[at : at + count]).decode("utf-8", "replace")

    def byte(self, field: int) -> int:
        return self._data[field] if field else 0

    def variadic_counts(self) -> tuple[int, ...]:
        header = self.field(self.indirect(0), 2)
        batch = self.indirect(header) if header else 0
        at, count = self.vector(self.field(batch, 4) if batch else 0, 8, MAX_BUFFERS)
        return struct.Struct(f"<{count}q").unpack_from(self._data, at)

    def layout(self) -> _Layout:
        message = self.indirect(0)
        kind = self.byte(self.field(message, 1))
        if kind > RECORD_BATCH:
            raise violation(f"metadata message refused: unknown header, type={kind}")
        body_length = self.field(message, 3)
        if body_length:
            self._check(body_length, 8)
        custom, _ = self.vector(self.field(message, 4), 4, _MAX_CUSTOM)
        if kind < DICTIONARY_BATCH:
            return _Layout(kind, body_length, 0, 0, 0, 0, 0, custom, False)
        header = self.field(message, 2)
        batch = self.indirect(header) if header else 0
        if kind == DICTIONARY_BATCH and batch:
            data = self.field(batch, 1)
            batch = self.indirect(data) if data else 0
        if not batch:
            raise violation("metadata message refused: a batch without a header")
        length = self.field(batch, 0)
        if length:
            self._check(length, 8)
        nodes, node_count = self.vector(self.field(batch, 1), _NODE_LENGTH, MAX_BUFFERS)
        buffers, count = self.vector(self.field(batch, 2), _BUFFER_LENGTH, MAX_BUFFERS)
        compressed = self.field(batch, 3) != 0
        return _Layout(
            kind, body_length, buffers, count, length, nodes, node_count, custom, compressed
        )


class MessageParser:
    """Reads the messages of one stream.

    Batches of a stream mostly differ only in their numbers. The parser keeps the last layout
    together with a mask of the bytes that decide it, so that a message of the same shape costs one
    comparison instead of a walk through its tables.
    """

    def __init__(self) -> None:
        self._length = -1
        self._mask = 0
        self._shape = 0
        self._layout: Optional[_Layout] = None

    def parse(self, flatbuffer: bytes) -> IpcMessage:
        """Reads a message, or raises PROTOCOL_VIOLATION."""
        if len(flatbuffer) == self._length:
            shape = int.from_bytes(flatbuffer, "little") & self._mask
            if shape == self._shape:
                return IpcMessage(flatbuffer, self._layout)  # type: ignore[arg-type]
        layout = _Walker(flatbuffer).layout()
        if layout.header_type == RECORD_BATCH and not layout.custom_at:
            self._remember(flatbuffer, layout)
        return IpcMessage(flatbuffer, layout)

    def _remember(self, flatbuffer: bytes, layout: _Layout) -> None:
        mask = bytearray(b"\xff" * len(flatbuffer))
        for at, size in (
            (layout.body_length_at, 8),
            (layout.length_at, 8),
            (layout.nodes_at, _NODE_LENGTH * layout.node_count),
            (layout.buffers_at, _BUFFER_LENGTH * layout.buffer_count),
        ):
            if at:
                mask[at : at + size] = bytes(size)
        self._length = len(flatbuffer)
        self._mask = int.from_bytes(mask, "little")
        self._shape = int.from_bytes(flatbuffer, "little") & self._mask
        self._layout = layout
