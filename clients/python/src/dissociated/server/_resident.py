"""Data that stays: copied once into frozen segments, its messages encoded once."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from ..wire import BY_REFERENCE, Kind, body_tag, frame, metadata_message
from ._encoder import EncodedMessage, Encoder
from ._memory import MemoryLimit, ServedSegment
from ._sources import Batches

_MESSAGES_PER_RUN = 64
_LARGEST_SEGMENT = 1 << 30
_U32 = struct.Struct("<I")


class Run(NamedTuple):
    """Several messages in a row, ready to be sent: the whole bytes for either metadata mode."""

    inline: bytes
    metadata: bytes
    bodies: bytes
    addresses: tuple[int, ...]
    batches: int
    body_bytes: int


class ResidentStream:
    """A stream that every reader gets alike. Serving it is a replay. Immutable once made."""

    def __init__(self, limit: MemoryLimit, source: Batches) -> None:
        """Reads the source; raises RESOURCE_EXHAUSTED when there is no room."""
        self.schema: pa.Schema = source.schema
        self.segments: list[ServedSegment] = []
        self.lengths: dict[int, int] = {}
        self.runs: list[Run] = []
        self.messages = 0
        self.batches = self.rows = self.bytes = 0
        encoder = Encoder(source.schema)
        try:
            encoded = [encoder.schema()]
            for batch, custom in source:
                encoded.extend(encoder.batch(batch, custom))
                self.rows += batch.num_rows
            self._build(limit, encoded)
        except BaseException:
            self.close()
            raise
        finally:
            encoder.close()
            source.close()

    def _build(self, limit: MemoryLimit, encoded: list[EncodedMessage]) -> None:
        pending: list[tuple[int, EncodedMessage, bytes, tuple[int, ...]]] = []
        bases = self._place(limit, encoded)
        for sequence, (item, base) in enumerate(zip(encoded, bases)):
            listed = b""
            addresses: tuple[int, ...] = ()
            if item.message.has_body:
                references = item.references(base)
                listed = references.encode()
                leased = [(a, n) for a, n in zip(*references[1:]) if n]
                self.lengths.update(leased)
                addresses = tuple(a for a, _ in leased)
                self.bytes += references.total
            pending.append((sequence, item, listed, addresses))
            if len(pending) == _MESSAGES_PER_RUN:
                self._finish_run(pending)
                pending = []
        if pending:
            self._finish_run(pending)
        self.messages = len(encoded)

    def _finish_run(
        self, pending: list[tuple[int, EncodedMessage, bytes, tuple[int, ...]]]
    ) -> None:
        inline: list[bytes] = []
        metadata: list[bytes] = []
        bodies: list[bytes] = []
        addresses: list[int] = []
        batches = size = 0
        for sequence, item, listed, leased in pending:
            message = metadata_message(sequence, item.message.flatbuffer)
            inline.append(frame(Kind.UNTAGGED, message))
            metadata += (_U32.pack(len(message)), message)
            if item.message.has_body:
                body = frame(Kind.TAGGED, listed, body_tag(BY_REFERENCE, sequence))
                inline.append(body)
                bodies.append(body)
                addresses += leased
                size += sum(self.lengths[a] for a in leased)
                batches += item.is_record_batch
        run = Run(
            b"".join(inline), b"".join(metadata), b"".join(bodies), tuple(addresses), batches, size
        )
        self.batches += batches
        self.runs.append(run)

    def _place(self, limit: MemoryLimit, encoded: list[EncodedMessage]) -> list[int]:
        """Copies all bodies; gives the address of each."""
        bases: list[int] = []
        for group, size in _groups(encoded):
            segment = ServedSegment(limit, size) if size else None
            if segment is not None:
                self.segments.append(segment)
            position = 0
            for item in group:
                bases.append(segment.base + position if segment else 0)
                if segment is not None:
                    with segment.memory as memory:
                        position = _copy(memory, position, item)
            if segment is not None:
                segment.freeze()
        return bases

    def close(self) -> None:
        """Lets go of the segments; clients keep what they have mapped."""
        for segment in self.segments:
            segment.close()


def _groups(encoded: list[EncodedMessage]) -> Iterator[tuple[list[EncodedMessage], int]]:
    """Messages that share a segment, and the bytes they need: a batch lies in one segment."""
    group: list[EncodedMessage] = []
    size = 0
    for item in encoded:
        length = _aligned(item.message.body_length)
        if group and size + length > _LARGEST_SEGMENT:
            yield group, size
            group, size = [], 0
        group.append(item)
        size += length
    yield group, size


def _aligned(length: int) -> int:
    return -(-length // 64) * 64


def _copy(memory: memoryview, position: int, item: EncodedMessage) -> int:
    start = position
    for part in item.parts:
        end = position + len(part)
        memory[position:end] = memoryview(part).cast("B")
        position = end
    item.parts.clear()
    return start + _aligned(item.message.body_length)
