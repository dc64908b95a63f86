"""A server that says exactly what a test wants, over a real socket."""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from conftest import LONGEST

from dissociated import wire
from dissociated._segments import (
    F_ADD_SEALS,
    F_SEAL_FUTURE_WRITE,
    F_SEAL_GROW,
    F_SEAL_SHRINK,
)
from dissociated.server._encoder import Encoder
from dissociated.wire.frame import OFFSET_BITS

WANT, FREE = 77, 78
HELLO = wire.Hello(bytes(16), bytes(range(16)), WANT, FREE, 6000)
IMPATIENT_MS = 50
"""Heartbeat interval of a server whose silence is noticed soon, and also when it is only slow."""
IMPATIENT = wire.frame(
    wire.Kind.HELLO, wire.Hello(bytes(16), bytes(range(16)), WANT, FREE, IMPATIENT_MS).encode()
)
SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE
SEGMENT_SIZE = 1 << 16

BATCH = pa.record_batch({"i": pa.array([1, 2, 3]), "s": pa.array(["a", None, "ccc"])})


def encoded(*batches: pa.RecordBatch) -> list[tuple[bytes, bytes, Any]]:
    """Flatbuffer, packed body and message of the schema and of each batch."""
    batches = batches or (BATCH,)
    encoder = Encoder(batches[0].schema)
    messages = [encoder.schema()]
    for batch in batches:
        messages += encoder.batch(batch)
    encoder.close()
    return [(bytes(m.message.flatbuffer), b"".join(m.parts), m) for m in messages]


def metadata(sequence: int, flatbuffer: bytes) -> bytes:
    return wire.frame(wire.Kind.UNTAGGED, wire.metadata_message(sequence, flatbuffer))


def end(sequence: int) -> bytes:
    return wire.frame(wire.Kind.UNTAGGED, wire.end_of_stream(sequence))


def packed(sequence: int, body: bytes) -> bytes:
    return wire.frame(wire.Kind.TAGGED, body, wire.body_tag(wire.PACKED, sequence))


def listed(sequence: int, *pairs: tuple[int, int]) -> bytes:
    addresses, lengths = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    payload = wire.BufferList(sum(lengths), addresses, lengths).encode()
    return wire.frame(wire.Kind.TAGGED, payload, wire.body_tag(wire.BY_REFERENCE, sequence))


@contextlib.contextmanager
def memory(
    contents: bytes = b"", size: int = SEGMENT_SIZE, seals: int = SEALS, sparse: bool = False
) -> Iterator[int]:
    """A memory file as a server makes it, or not quite."""
    descriptor = os.memfd_create("fake", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        if not sparse:
            os.posix_fallocate(descriptor, 0, size)
        with mmap.mmap(descriptor, size) as mapped:
            mapped[: len(contents)] = contents
        if seals:
            fcntl.fcntl(descriptor, F_ADD_SEALS, seals)
        yield descriptor
    finally:
        os.close(descriptor)


def send_segment(
    connection: socket.socket, descriptor: int, segment: int = 1, size: int = SEGMENT_SIZE
) -> None:
    send_with(connection, wire.segment_frame(segment, size), [descriptor])


def send_with(connection: socket.socket, data: bytes, descriptors: list[int]) -> None:
    rights = array.array("i", descriptors)
    connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def references(item: Any, base: int) -> list[tuple[int, int]]:
    """The pairs of a message whose packed body lies at ``base``."""
    found = item.references(base)
    return list(zip(found.addresses, found.lengths))


def address(offset: int, segment: int = 1) -> int:
    return segment << OFFSET_BITS | offset


class FakeServer:
    """Accepts one connection, greets, reads the request and runs the test's script."""

    def __init__(
        self, script: Callable[[socket.socket], None], greeting: bytes | None = None
    ) -> None:
        self._script = script
        self._greeting = greeting
        self.received = b""
        self.failure: BaseException | None = None

    def __enter__(self) -> FakeServer:
        self._folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self._folder.name, "s")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.path)
        self._socket.listen()
        self._socket.settimeout(LONGEST)
        self._thread = threading.Thread(target=self._run, name="dissociated-fake")
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            connection, _ = self._socket.accept()
            with connection:
                connection.settimeout(LONGEST)
                if self._greeting is not None:
                    connection.sendall(self._greeting)
                else:
                    connection.sendall(wire.frame(wire.Kind.HELLO, HELLO.encode()))
                    self._request(connection)
                self._script(connection)
                self._drain(connection)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            pass  # the client refused and left
        except BaseException as e:
            self.failure = e

    def _request(self, connection: socket.socket) -> None:
        header = connection.recv(wire.HEADER_LENGTH, socket.MSG_WAITALL)
        length, tag, kind = wire.FRAME_HEADER.unpack(header)
        assert (tag, kind) == (WANT, wire.Kind.TAGGED)
        self.request = connection.recv(length, socket.MSG_WAITALL)

    def _drain(self, connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_WR)
        while True:
            data = connection.recv(65536)
            if not data:
                return
            self.received += data

    def freed(self) -> list[int]:
        """All addresses that the client has freed."""
        found: list[int] = []
        rest = self.received
        while rest:
            length, tag, kind = wire.FRAME_HEADER.unpack_from(rest)
            assert (tag, kind) == (FREE, wire.Kind.TAGGED)
            stop = wire.HEADER_LENGTH + length
            found += wire.parse_free_list(rest[wire.HEADER_LENGTH : stop])
            rest = rest[stop:]
        return found

    def __exit__(self, *_: object) -> None:
        self._thread.join(3 * LONGEST)
        self._socket.close()
        self._folder.cleanup()
        assert not self._thread.is_alive(), "the server's script does not end"
        if self.failure is not None:
            raise self.failure
