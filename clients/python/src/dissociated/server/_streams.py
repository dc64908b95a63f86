"""Sending one stream: numbering messages, lending memory or sending packed."""

from __future__ import annotations

import abc
import struct
from typing import Any, Optional

import pyarrow as pa

from ..errors import Code, DissociatedError
from ..wire import (
    BY_REFERENCE,
    PACKED,
    Kind,
    Summary,
    body_tag,
    end_of_stream,
    frame,
    header,
    metadata_message,
)
from ._connection import Connection
from ._encoder import EncodedMessage, Encoder
from ._memory import Pool
from ._resident import ResidentStream, Run
from ._sources import Batches

_U32 = struct.Struct("<I")


class MetadataPath(abc.ABC):
    """How the metadata of a stream travels."""

    @abc.abstractmethod
    def message(self, connection: Connection, message: bytes) -> None:
        """Sends one metadata message."""

    @abc.abstractmethod
    def run(self, connection: Connection, run: Run) -> None:
        """Sends a prepared run of messages with their bodies."""


class Inline(MetadataPath):
    """Metadata on the data connection."""

    def message(self, connection: Connection, message: bytes) -> None:
        connection.send([header(Kind.UNTAGGED, len(message)), message])

    def run(self, connection: Connection, run: Run) -> None:
        connection.send([run.inline])


class Separate(MetadataPath):
    """Metadata by a function that sends it elsewhere: whole ``app_metadata`` of a Flight call."""

    def __init__(self, send: Any) -> None:
        self._send = send

    def message(self, connection: Connection, message: bytes) -> None:
        self._send(_U32.pack(len(message)) + message)

    def run(self, connection: Connection, run: Run) -> None:
        self._send(run.metadata)
        if run.bodies:
            connection.send([run.bodies])


def send_resident(connection: Connection, path: MetadataPath, stream: ResidentStream) -> None:
    """Replays a resident stream."""
    for segment in stream.segments:
        connection.announce(segment)
    batches = size = 0
    for run in stream.runs:
        if not connection.leases.lend_resident(run.addresses):
            raise DissociatedError(Code.UNAVAILABLE, "the client is gone")
        path.run(connection, run)
        batches += run.batches
        size += run.body_bytes
        connection.sent = Summary(batches, size, 0)
    _complete(connection, path, stream.messages)


def send_live(
    connection: Connection,
    path: MetadataPath,
    source: Batches,
    pool: Pool,
    options: Optional[pa.ipc.IpcWriteOptions] = None,
) -> None:
    """Sends a stream that is made for this client alone."""
    encoder = Encoder(source.schema, options)
    try:
        sender = _LiveSender(connection, path, pool)
        sender.send(encoder.schema())
        for batch, custom in source:
            for message in encoder.batch(batch, custom):
                sender.send(message)
        _complete(connection, path, sender.sequence)
    finally:
        encoder.close()
        source.close()


def _complete(connection: Connection, path: MetadataPath, sequence: int) -> None:
    connection.send([frame(Kind.SUMMARY, connection.sent.encode())])
    path.message(connection, end_of_stream(sequence))


class _LiveSender:
    """Numbers messages and decides for each body whether it is lent or sent packed."""

    def __init__(self, connection: Connection, path: MetadataPath, pool: Pool) -> None:
        self._connection = connection
        self._path = path
        self._pool = pool
        self.sequence = 0
        self.batches = 0
        self.bytes = 0
        self.copied = 0

    def send(self, item: EncodedMessage) -> None:
        number, self.sequence = self.sequence, self.sequence + 1
        # Metadata first: a client that waits for it would not read a body that blocks us.
        self._path.message(self._connection, metadata_message(number, item.message.flatbuffer))
        if not item.message.has_body:
            return
        self.batches += item.is_record_batch
        if not self._lend(number, item):
            length = item.message.body_length
            tag = body_tag(PACKED, number)
            self._connection.send([header(Kind.TAGGED, length, tag), *item.parts])
            self.bytes += length
        self._connection.sent = Summary(self.batches, self.bytes, self.copied)

    def _lend(self, number: int, item: EncodedMessage) -> bool:
        length = item.message.body_length
        leases = self._connection.leases
        if not length or not leases.admits(length):
            return False
        block = self._pool.allocate(length)
        if block is None:
            return False
        block.write(item.parts)
        references = item.references(block.address)
        addresses = tuple(a for a, n in zip(*references[1:]) if n)
        if not addresses:
            self._pool.release(block)
            return False
        if not leases.lend(block, addresses):
            self._pool.release(block)
            raise DissociatedError(Code.UNAVAILABLE, "the client is gone")
        self.copied += references.total
        self.bytes += references.total
        self._connection.announce(block.segment)
        tag = body_tag(BY_REFERENCE, number)
        self._connection.send([frame(Kind.TAGGED, references.encode(), tag)])
        return True
