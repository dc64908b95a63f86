"""From record batches to IPC messages whose bodies are still in parts.

Arrow's own stream writer does the encoding, and with it dictionaries, deltas and replacements. It
writes into a sink that keeps the buffers it is handed instead of copying them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import pyarrow as pa

from ..errors import Code, DissociatedError
from ..wire import IpcMessage, MessageParser
from ..wire.body import BufferList
from ..wire.ipc_message import RECORD_BATCH

_LENGTHS = struct.Struct("<Ii")
_CONTINUATION = 0xFFFF_FFFF
_ALIGNMENT = 8


class EncodedMessage(NamedTuple):
    """One IPC message on its way out."""

    message: IpcMessage
    parts: list[Any]

    @property
    def is_record_batch(self) -> bool:
        """Whether it is a record batch; otherwise a dictionary or the schema."""
        return self.message.kind == RECORD_BATCH

    def references(self, base: int) -> BufferList:
        """The buffer list of the packed body at ``base``."""
        layout = self.message.buffers()
        offsets, lengths = layout[0::2], layout[1::2]
        addresses = tuple(base + o if n else 0 for o, n in zip(offsets, lengths))
        return BufferList(sum(lengths), addresses, lengths)


class _Sink:
    """A file that collects what is written to it, without copying buffers."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def write(self, data: Any) -> int:
        # pyarrow hands over small control data as bytes and everything else as buffers.
        self.parts.append(data)
        return len(data)

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self.parts.clear()

    def tell(self) -> int:
        return 0


class Encoder:
    """Encodes one stream. Not thread-safe."""

    def __init__(self, schema: pa.Schema, options: Optional[pa.ipc.IpcWriteOptions] = None) -> None:
        self._sink = _Sink()
        self._parser = MessageParser()
        options = options or pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
        file = pa.PythonFile(self._sink, mode="w")
        self._writer: Any = pa.ipc.new_stream(file, schema, options=options)
        self._schema = schema
        self._schema_sent = False

    def schema(self) -> EncodedMessage:
        """The schema's message."""
        flatbuffer = pa.ipc.read_message(self._schema.serialize()).metadata.to_pybytes()
        return EncodedMessage(self._parser.parse(flatbuffer), [])

    def batch(self, batch: pa.RecordBatch, custom_metadata: Any = None) -> Iterator[EncodedMessage]:
        """The batch's message, after those of the dictionaries it brings."""
        self._writer.write_batch(batch, custom_metadata)
        parts, self._sink.parts = self._sink.parts, []
        for message in _split(parts, self._parser):
            # The writer begins with the schema, which has been sent already.
            if message.message.has_body:
                yield message

    def close(self) -> None:
        """Lets go of the writer and the dictionaries it remembers."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._sink.parts = []


def _split(parts: list[Any], parser: MessageParser) -> Iterator[EncodedMessage]:
    """Cuts the written stream into messages; bodies stay the buffers that they were."""
    queue = _Parts(parts)
    while queue.remaining:
        marker, length = _LENGTHS.unpack(queue.take_bytes(_LENGTHS.size))
        if marker != _CONTINUATION:
            raise DissociatedError(Code.INTERNAL, "the encoder wrote an unknown message format")
        if length == 0:
            return
        message = parser.parse(queue.take_bytes(length))
        yield EncodedMessage(message, queue.take(message.body_length))


class _Parts:
    """Consumes a sequence of byte ranges from its front."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = [pa.py_buffer(p) for p in parts if len(p)]
        self._index = 0
        self._offset = 0
        self.remaining = sum(len(p) for p in self._parts)

    def take(self, size: int) -> list[pa.Buffer]:
        taken = []
        self.remaining -= size
        while size:
            part = self._parts[self._index]
            piece = part.slice(self._offset, min(size, part.size - self._offset))
            taken.append(piece)
            size -= piece.size
            self._offset += piece.size
            if self._offset == part.size:
                self._index += 1
                self._offset = 0
        return taken

    def take_bytes(self, size: int) -> bytes:
        return b"".join(self.take(size))
