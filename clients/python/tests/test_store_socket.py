"""The socket of a store's client: what it makes of what comes, and how long it stays awake."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import LONGEST
from fakes import HELLO, FakeServer, memory, send_segment

import dissociated.store
from dissociated import DissociatedError, wire
from dissociated._mapping import HUGE_PAGE
from dissociated._own_memory import OwnSegment, create_file
from dissociated._spin import Spin
from dissociated._store_socket import SLICE, StoreSocket
from dissociated.errors import Code
from dissociated.wire.frame import HEADER_LENGTH, Kind, frame
from dissociated.wire.store import STORE_TAG, Op, StoreMessage, store_frame

GREETING = frame(Kind.HELLO, HELLO.encode())


@pytest.fixture
def taken() -> list[StoreMessage]:
    return []


def connect(server: FakeServer) -> StoreSocket:
    """The server's script may begin."""
    client = StoreSocket(server.path)
    client.send(b"x")
    return client


def receive_all(client: StoreSocket, taken: list[StoreMessage], count: int) -> None:
    deadline = time.monotonic() + LONGEST
    while len(taken) < count and time.monotonic() < deadline:
        client.receive(SLICE, taken.append)


def test_takes_messages_however_they_are_cut(taken: list[StoreMessage]) -> None:
    sizes = [0, 1, 100, 70_000, 300_000, 3]
    messages = [store_frame(Op.ROWS, 1 + i, payload=bytes(n)) for i, n in enumerate(sizes)]
    stream = b"".join(messages)

    def script(connection: socket.socket) -> None:
        connection.recv(1)
        for step in (1, 23, 57, 4096, 65_536, 1 << 20):
            for at in range(0, len(stream) if step > 1 else 3000, step):
                connection.sendall(stream[at : at + step])
            if step == 1:
                connection.sendall(stream[3000:])

    with FakeServer(script, GREETING) as server:
        client = connect(server)
        receive_all(client, taken, 6 * len(sizes))
        client.close()
    assert [len(message.payload) for message in taken] == 6 * sizes
    assert [message.request for message in taken] == 6 * list(range(1, 7))


def test_a_message_in_its_frame_is_the_message_in_a_frame() -> None:
    fields = {"name": b"x", "a": 1, "b": 2, "payload": b"xyz", "kind": 3, "flags": 3}
    framed = store_frame(Op.PUT, 7, **fields)  # type: ignore
    assert framed == frame(Kind.TAGGED, framed[HEADER_LENGTH:], STORE_TAG)


@pytest.mark.parametrize(
    "sent, code",
    [
        (frame(Kind.UNTAGGED, b"x"), Code.PROTOCOL_VIOLATION),
        (frame(Kind.TAGGED, bytes(32), 7), Code.PROTOCOL_VIOLATION),
        (frame(Kind.TAGGED, bytes(31), STORE_TAG), Code.PROTOCOL_VIOLATION),
        (store_frame(Op.GET, 1, b"x"), Code.PROTOCOL_VIOLATION),
        (wire.header(Kind.TAGGED, 1 << 40, STORE_TAG), Code.PROTOCOL_VIOLATION),
        (wire.frame(Kind.SEGMENT, bytes(16)), Code.PROTOCOL_VIOLATION),
        (wire.segment_frame(1, 4096), Code.PROTOCOL_VIOLATION),
        (wire.frame(Kind.ERROR, wire.encode_error(2, "no")), Code.NOT_FOUND),
    ],
)
def test_refuses_what_no_store_says(sent: bytes, code: Code) -> None:
    def script(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(sent)

    with FakeServer(script, GREETING) as server:
        client = connect(server)
        with pytest.raises(DissociatedError) as refused:
            receive_all(client, [], 1)
        assert refused.value.code is code
        client.close()


def test_a_segment_and_the_message_behind_it_can_come_together(taken: list[StoreMessage]) -> None:
    def script(connection: socket.socket) -> None:
        connection.recv(1)
        with memory(b"contents") as descriptor:
            send_segment(connection, descriptor)
            connection.sendall(store_frame(Op.DONE, 1))

    before = len(os.listdir("/proc/self/fd"))
    with FakeServer(script, GREETING) as server:
        client = connect(server)
        receive_all(client, taken, 1)
        assert client.segments.get(1).size == 1 << 16
        client.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_waiting_has_an_end_and_can_be_none_at_all(taken: list[StoreMessage]) -> None:
    done = threading.Event()
    with FakeServer(lambda connection: done.wait(LONGEST) and None, GREETING) as server:
        client = connect(server)
        for seconds in (0, 0.01, SLICE):
            assert not client.receive(seconds, taken.append)
        done.set()
        client.close()
        with pytest.raises(DissociatedError) as gone:
            client.receive(0, taken.append)
        assert gone.value.code is Code.UNAVAILABLE


@pytest.fixture
def told_to_spin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DISSOCIATED_SPIN_MICROS", "1")
    yield


@pytest.mark.usefixtures("told_to_spin")
def test_sleeps_for_twice_as_many_waits_after_each_miss() -> None:
    spin, looks = Spin(), []

    def look(timeout: int) -> bool:
        looks.append(timeout)
        return False

    for skipped in (1, 2, 4, 8):
        looks.clear()
        assert not spin.until(look) and set(looks) == {0}
        looks.clear()
        for _ in range(skipped):
            assert not spin.until(look)
        assert not looks
    assert spin.until(lambda timeout: True)
    assert not spin.until(look) and not spin.until(lambda timeout: True)
    assert spin.until(lambda timeout: True), "a hit forgives all misses before it"


def test_never_spins_when_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISSOCIATED_SPIN_MICROS", "0")
    assert not Spin().until(lambda timeout: True)


@pytest.mark.parametrize("size", [1, HUGE_PAGE - 1, HUGE_PAGE, 2 * HUGE_PAGE + 5000])
def test_memory_to_be_handed_over_has_all_its_pages(size: int) -> None:
    segment = OwnSegment(create_file(), size)
    try:
        pages = -(-size // 4096)
        status = os.fstat(segment.descriptor)
        assert (status.st_size, status.st_blocks) == (pages * 4096, pages * 8)
        array = np.frombuffer(segment.view(size), dtype=np.uint8)
        array[:] = np.arange(size) % 251
        assert segment.freeze() == pages * 4096
        assert (array == np.arange(size) % 251).all()
    finally:
        segment.close()


def test_a_put_without_a_copy_of_many_pages_comes_back(store: dissociated.store.Store) -> None:
    with store.create("x", 3 * HUGE_PAGE // 8 + 100, "int64") as array:
        array[:] = np.arange(len(array))
    assert (store.get("x") == np.arange(3 * HUGE_PAGE // 8 + 100)).all()
    assert (array == np.arange(len(array))).all() and not array.flags.writeable
