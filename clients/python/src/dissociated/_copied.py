"""What is put by telling the daemon where it lies in this process's memory, and copied by it."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ._store_table import split_stream
from .wire.store import COPIED, INLINE, MAX_MESSAGE, buffer_entry

_PIECE = struct.Struct("<QQ")
_MOST_PIECES = MAX_MESSAGE // 4 // _PIECE.size
_MOST_METADATA = MAX_MESSAGE // 2


class Copied:
    """The buffers of a put that the daemon copies; what they lie in stays as long as this does."""

    def __init__(self) -> None:
        self.length = 0
        self._keep: list[Any] = []
        self._metadata = b""
        self._buffers: list[list[tuple[int, int]]] = []

    @classmethod
    def of_parts(cls, parts: Sequence[Any]) -> Copied:
        """One buffer for each bytes-like part."""
        copied = cls()
        for part in parts:
            copied._add([pa.py_buffer(part)])
        return copied

    @classmethod
    def of_body(cls, metadata: bytes, parts: Sequence[Any]) -> Copied:
        """Metadata inline, and one buffer of all parts, one behind the other."""
        copied = cls()
        copied._metadata = metadata
        copied._add([pa.py_buffer(part) for part in parts])
        return copied

    @classmethod
    def of_stream(cls, reader: pa.RecordBatchReader) -> Copied:
        """A table whose memory lasts: its metadata, and one buffer of all its bodies."""
        sink = _Gathered()
        with pa.PythonFile(sink, mode="w") as file:
            with pa.ipc.new_stream(file, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
        metadata, bodies = split_stream(sink.read)
        parts = [part for at, length in bodies for part in sink.parts(at, length)]
        return cls.of_body(metadata, parts)

    def _add(self, parts: list[pa.Buffer]) -> None:
        pieces: list[tuple[int, int]] = []
        for part in parts:
            if part.size:
                pieces.append((part.address, part.size))
                self.length += part.size
        self._keep += parts
        self._buffers.append(pieces)

    @property
    def fits(self) -> bool:
        """Whether a message can say all of it."""
        pieces = sum(map(len, self._buffers))
        return pieces <= _MOST_PIECES and len(self._metadata) <= _MOST_METADATA

    def payload(self) -> tuple[list[bytes], bytes]:
        """The entries of the message's buffers, and the inline bytes."""
        entries, inline = [], [self._metadata]
        at = len(self._metadata)
        if self._metadata:
            entries.append(buffer_entry(INLINE, 0, at))
        for pieces in self._buffers:
            if not pieces:
                if not self._metadata:
                    entries.append(buffer_entry(INLINE, 0, 0))
                continue
            entries.append(buffer_entry(COPIED, at, sum(length for _, length in pieces)))
            inline += [_PIECE.pack(*piece) for piece in pieces]
            at += len(pieces) * _PIECE.size
        return entries, b"".join(inline)


class _Gathered:
    """A file that keeps what is written to it, as it was given: Arrow gives its buffers."""

    closed = False

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._parts: list[pa.Buffer] = []
        self._end = 0

    def write(self, data: Any) -> int:
        part = pa.py_buffer(data)
        if part.size:
            self._starts.append(self._end)
            self._parts.append(part)
            self._end += part.size
        return int(part.size)

    def parts(self, at: int, length: int) -> list[pa.Buffer]:
        """What lies there, in pieces."""
        found = []
        index = bisect.bisect_right(self._starts, at) - 1
        while length > 0 and 0 <= index < len(self._parts):
            part = self._parts[index]
            skip = at - self._starts[index]
            step = min(length, part.size - skip)
            found.append(part.slice(skip, step))
            at, length, index = at + step, length - step, index + 1
        return found

    def read(self, at: int, length: int) -> bytes:
        return b"".join(part.to_pybytes() for part in self.parts(at, length))

    def tell(self) -> int:
        return self._end

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
