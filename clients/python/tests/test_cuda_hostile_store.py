"""Daemons that say of device memory what is not so, and daemons that know nothing of it."""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
import uuid
from collections.abc import Callable
from typing import Any

import fakes
import pyarrow as pa
import pytest
from conftest import wait_until
from fakes import FakeServer
from standin import SIZE, UUID, Exporter, StandIn

import dissociated.store
from dissociated import Code, DissociatedError, wire
from dissociated._arrays import TensorType
from dissociated._store_table import tensor_metadata
from dissociated.wire.frame import OFFSET_BITS
from dissociated.wire.store import DEVICE, SHARED, STORE_TAG, ObjectType, Op, store_frame

GREETING = wire.frame(wire.Kind.HELLO, fakes.HELLO.encode())
OPEN, GET = 1, 2  # the numbers of the client's requests
METADATA = tensor_metadata(TensorType(pa.int64()), (4,))
NUMBERS = struct.pack("<4q", 1, 2, 3, 4)


def say(op: Op, **fields: Any) -> bytes:
    return store_frame(op, **fields)


def hear(connection: socket.socket) -> tuple[int, int, int]:
    """Op, request and first number of the client's next message."""
    header = connection.recv(wire.HEADER_LENGTH, socket.MSG_WAITALL)
    length, tag, _ = wire.FRAME_HEADER.unpack(header)
    assert tag == STORE_TAG
    message = connection.recv(length, socket.MSG_WAITALL)
    return message[0], *struct.unpack_from("<QQ", message, 8)


def arena(memory: Any, number: int = 5, op: Op = Op.ARENA, **fields: Any) -> bytes:
    process, allocation = memory.exporter.split(".")
    payload = struct.pack(
        "<QQ16sQ64s",
        int(process, 16),
        int(allocation),
        uuid.UUID(memory.device).bytes,
        SIZE,
        memory.handle,
    )
    return say(op, a=number, payload=payload, **fields)


def entries(*places: tuple[int, int, int]) -> bytes:
    return b"".join(
        struct.pack("<IIQQ", kind, 0, address, length) for kind, address, length in places
    )


def object_at(offset: int = 0, length: int = 32, number: int = 5) -> bytes:
    host = (SHARED, fakes.address(0), len(METADATA))
    buffers = entries(host, (DEVICE, number << OFFSET_BITS | offset, length))
    return say(Op.OBJECT, kind=ObjectType.TENSOR, request=GET, a=9, b=2, payload=buffers)


def daemon(*answer: bytes) -> Callable[[socket.socket], None]:
    """Opens, and answers the first GET."""

    def script(connection: socket.socket) -> None:
        assert hear(connection) == (Op.OPEN, OPEN, 2)
        connection.sendall(say(Op.OPENED, request=OPEN, a=2, b=1))
        assert hear(connection)[0] == Op.GET
        with fakes.memory(METADATA) as descriptor:
            fakes.send_segment(connection, descriptor)
            connection.sendall(b"".join(answer))

    return script


@contextlib.contextmanager
def got(exporter: Exporter, *answer: bytes) -> Any:
    with FakeServer(daemon(*answer), GREETING) as server:
        store = dissociated.store.connect(server.path)
        try:
            yield store
        finally:
            store.close()
            # What is refused keeps its lease as long as somebody looks at the failure.
            store._connected.drop()


@pytest.fixture
def exporter(cuda: StandIn) -> Any:
    with Exporter(cuda, NUMBERS) as started:
        yield started
        assert wait_until(lambda: gc.collect() >= 0 and cuda.live()["live.imports"] == 0)


def test_reads_what_is_so(exporter: Exporter, cuda: StandIn) -> None:
    with got(exporter, arena(exporter.memory), object_at()) as store:
        tensor = store.get("x")
        assert tensor.copy_to_host().tolist() == [1, 2, 3, 4]
        tensor.close()


@pytest.mark.parametrize(
    ("offset", "length", "number"),
    [(SIZE - 24, 32, 5), (SIZE, 32, 5), ((1 << 40) - 32, 32, 5), (0, 32, 6)],
)
def test_refuses_buffers_that_lie_elsewhere(
    offset: int, length: int, number: int, exporter: Exporter
) -> None:
    with (
        got(exporter, arena(exporter.memory), object_at(offset, length, number)) as store,
        pytest.raises(DissociatedError) as refused,
    ):
        store.get("x")
    assert refused.value.code is Code.PROTOCOL_VIOLATION, refused.value.message


def test_refuses_bodies_that_are_too_short(exporter: Exporter) -> None:
    with (
        got(exporter, arena(exporter.memory), object_at(0, 24)) as store,
        pytest.raises(DissociatedError) as refused,
    ):
        store.get("x")
    assert refused.value.code is Code.DATA_CORRUPT


def test_refuses_memory_that_cannot_be_had(exporter: Exporter) -> None:
    memory = exporter.memory
    for wrong in (
        memory._replace(handle=bytes(64)),
        memory._replace(device=UUID[:-1] + "9"),
    ):
        with (
            got(exporter, arena(wrong), object_at()) as store,
            pytest.raises(DissociatedError, match="device memory not opened") as refused,
        ):
            store.get("x")
        assert refused.value.code is Code.UNAVAILABLE


@pytest.mark.parametrize(
    "said",
    [
        lambda memory: arena(memory) + arena(memory),
        lambda memory: arena(memory, number=0),
        lambda memory: arena(memory, number=1 << 24),
        lambda memory: arena(memory, request=GET),
        lambda memory: say(Op.ARENA, a=5),
        lambda memory: say(Op.DROP, a=0),
    ],
)
def test_refuses_messages_that_are_none(said: Any, exporter: Exporter) -> None:
    with (
        got(exporter, said(exporter.memory)) as store,
        pytest.raises(DissociatedError) as refused,
    ):
        store.get("x")
    assert refused.value.code is Code.PROTOCOL_VIOLATION, refused.value.message


def test_refuses_to_drop_what_is_in_use(exporter: Exporter, cuda: StandIn) -> None:
    with got(exporter, arena(exporter.memory), object_at(), say(Op.DROP, a=5)) as store:
        tensor = store.get("x")
        assert wait_until(lambda: not store._connected.is_usable)
        failure = store._connected._failure
        assert failure is not None and failure.code is Code.PROTOCOL_VIOLATION
        assert tensor.copy_to_host().tolist() == [1, 2, 3, 4]
        tensor.close()
        del failure, tensor


def test_an_arena_may_be_dropped_and_announced_again(exporter: Exporter, cuda: StandIn) -> None:
    heard: list[tuple[int, int, int]] = []

    def script(connection: socket.socket) -> None:
        with fakes.memory(METADATA) as descriptor:
            assert hear(connection)[0] == Op.OPEN
            connection.sendall(say(Op.OPENED, request=OPEN, a=2, b=1))
            fakes.send_segment(connection, descriptor)
            for request in (2, 3):
                assert hear(connection)[:2] == (Op.GET, request)
                shown = object_at().replace(struct.pack("<Q", GET), struct.pack("<Q", request), 1)
                connection.sendall(arena(exporter.memory) + shown)
                heard.append(hear(connection))
                connection.sendall(say(Op.DROP, a=5) + say(Op.DROP, a=77))
                heard.append(hear(connection))

    opened = cuda.count("cuIpcOpenMemHandle_v2")
    with FakeServer(script, GREETING) as server:
        store = dissociated.store.connect(server.path)
        for _ in range(2):
            store.get("x").close()
            assert wait_until(lambda: cuda.live()["live.imports"] == 0)
        store.close()
    assert [op for op, _, _ in heard] == [Op.RELEASE, Op.DROPPED] * 2
    assert heard[1][2] == 5 and cuda.count("cuIpcOpenMemHandle_v2") == opened + 2


def test_daemons_that_know_no_devices_are_asked_in_their_version() -> None:
    said: list[tuple[int, int, int]] = []

    def script(connection: socket.socket) -> None:
        said.append(hear(connection))
        connection.sendall(say(Op.FAILED, request=1, a=Code.UNSUPPORTED, payload=b"no version 2"))
        said.append(hear(connection))
        connection.sendall(say(Op.OPENED, request=2, a=1, b=1))
        said.append(hear(connection))
        connection.sendall(say(Op.FAILED, request=3, a=Code.NOT_FOUND, payload=b"nothing"))

    with FakeServer(script, GREETING) as server, dissociated.store.connect(server.path) as store:
        assert store.stat("x") is None
    assert said[:2] == [(Op.OPEN, 1, 2), (Op.OPEN, 2, 1)]
