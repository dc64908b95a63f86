"""A client against servers that break the protocol, lie, stop or die."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable

import fakes
import pyarrow as pa
import pytest
from fakes import BATCH, FakeServer, address, encoded, end, listed, metadata, packed

import dissociated
from dissociated import Code, DissociatedError, wire
from dissociated._channel import SILENT_INTERVALS

SCHEMA, DATA = encoded()[0][0], encoded()[1][0]
BODY, ITEM = encoded()[1][1], encoded()[1][2]
PAIRS = fakes.references(ITEM, address(0))


def read(path: str) -> pa.Table:
    with dissociated.connect(path) as client:
        return client.read_all("x")


def sends(*parts: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"".join(parts))


def shows(contents: bytes, *parts: bytes, **options: int) -> Callable[[socket.socket], None]:
    def script(connection: socket.socket) -> None:
        with fakes.memory(contents, **options) as descriptor:
            fakes.send_segment(connection, descriptor)
            connection.sendall(b"".join(parts))

    return script


def sends_with_descriptors(data: bytes, count: int) -> Callable[[socket.socket], None]:
    def script(connection: socket.socket) -> None:
        with fakes.memory() as descriptor:
            fakes.send_with(connection, data, [descriptor] * count)

    return script


def raw(kind: int, length: int, tag: int = 0) -> bytes:
    return struct.pack("<QQQ", length, tag, kind)


START = metadata(0, SCHEMA)
GOOD = (START, metadata(1, DATA))
BROKEN = {
    "closes at once": (sends(), Code.UNAVAILABLE),
    "closes before the end": (sends(*GOOD, packed(1, BODY)), Code.UNAVAILABLE),
    "closes inside a frame": (sends(START, packed(1, BODY)[:40]), Code.UNAVAILABLE),
    "reports an error": (
        sends(START, wire.frame(wire.Kind.ERROR, wire.encode_error(7, "no room"))),
        Code.RESOURCE_EXHAUSTED,
    ),
    "an unknown kind": (sends(raw(99, 0)), Code.PROTOCOL_VIOLATION),
    "a second hello": (
        sends(wire.frame(wire.Kind.HELLO, fakes.HELLO.encode())),
        Code.PROTOCOL_VIOLATION,
    ),
    "reserved header bytes": (sends(raw(2 | 1 << 40, 5)), Code.PROTOCOL_VIOLATION),
    "a tag on metadata": (sends(raw(2, 5, 1), bytes(5)), Code.PROTOCOL_VIOLATION),
    "a metadata frame without end": (sends(raw(2, 1 << 40)), Code.PROTOCOL_VIOLATION),
    "a heartbeat with a payload": (sends(raw(6, 8), bytes(8)), Code.PROTOCOL_VIOLATION),
    "a body beyond all memory": (
        sends(*GOOD, raw(3, 1 << 60, wire.body_tag(0, 1))),
        Code.PROTOCOL_VIOLATION,
    ),
    "an early body beyond the limit": (
        sends(START, raw(3, 1 << 40, wire.body_tag(0, 1))),
        Code.PROTOCOL_VIOLATION,
    ),
    "an empty metadata message": (sends(raw(2, 0)), Code.PROTOCOL_VIOLATION),
    "an unknown message type": (
        sends(wire.frame(wire.Kind.UNTAGGED, b"\x07" + bytes(8))),
        Code.PROTOCOL_VIOLATION,
    ),
    "a flatbuffer of zeroes": (sends(metadata(0, bytes(64))), None),
    "a flatbuffer that points outside": (
        sends(metadata(0, b"\xff" * 64)),
        Code.PROTOCOL_VIOLATION,
    ),
    "a batch before the schema": (
        sends(metadata(0, DATA), packed(0, BODY)),
        Code.PROTOCOL_VIOLATION,
    ),
    "two schemas": (sends(START, metadata(1, SCHEMA)), Code.PROTOCOL_VIOLATION),
    "a gap at the end": (sends(START, end(2)), Code.UNAVAILABLE),
    "an end too early": (sends(*GOOD, packed(1, BODY), end(1)), Code.PROTOCOL_VIOLATION),
    "an end far too late": (sends(START, end(1 << 20)), Code.PROTOCOL_VIOLATION),
    "an end before the schema": (sends(end(0)), Code.PROTOCOL_VIOLATION),
    "metadata twice": (sends(*GOOD, metadata(1, DATA)), Code.PROTOCOL_VIOLATION),
    "a body twice": (sends(START, packed(1, BODY), packed(1, BODY)), Code.PROTOCOL_VIOLATION),
    "a body for the schema": (sends(START, packed(0, b"")), Code.PROTOCOL_VIOLATION),
    "a body of another length": (sends(*GOOD, packed(1, BODY[:-8])), Code.PROTOCOL_VIOLATION),
    "reserved tag bits": (sends(START, raw(3, 0, 1 << 40)), Code.PROTOCOL_VIOLATION),
    "an unknown body type": (sends(START, raw(3, 0, 5 << 56)), Code.PROTOCOL_VIOLATION),
    "a segment without descriptor": (
        sends(wire.segment_frame(1, fakes.SEGMENT_SIZE)),
        Code.PROTOCOL_VIOLATION,
    ),
    "a descriptor without segment": (sends_with_descriptors(START, 1), Code.PROTOCOL_VIOLATION),
    "too many descriptors": (
        sends_with_descriptors(wire.segment_frame(1, fakes.SEGMENT_SIZE), 200),
        Code.PROTOCOL_VIOLATION,
    ),
    "an unsealed segment": (shows(BODY, seals=0), Code.PROTOCOL_VIOLATION),
    "a segment that may shrink": (
        shows(BODY, seals=fakes.F_SEAL_GROW | fakes.F_SEAL_FUTURE_WRITE),
        Code.PROTOCOL_VIOLATION,
    ),
    "a segment with holes": (shows(b"", sparse=True), Code.PROTOCOL_VIOLATION),
    "a segment of another size": (shows(b"", size=4096), Code.PROTOCOL_VIOLATION),
    "an unknown segment": (sends(*GOOD, listed(1, *PAIRS)), Code.PROTOCOL_VIOLATION),
    "an address outside the segment": (
        shows(BODY, *GOOD, listed(1, *((a + fakes.SEGMENT_SIZE if n else 0, n) for a, n in PAIRS))),
        Code.PROTOCOL_VIOLATION,
    ),
    "an address and length that overflow": (
        shows(BODY, *GOOD, listed(1, *PAIRS[:-1], ((1 << 64) - 8, 16))),
        Code.PROTOCOL_VIOLATION,
    ),
    "a list of other lengths": (
        shows(BODY, *GOOD, listed(1, *((a, n - 1 if n else 0) for a, n in PAIRS))),
        Code.PROTOCOL_VIOLATION,
    ),
    "a list of too few buffers": (
        shows(BODY, *GOOD, listed(1, *PAIRS[:2])),
        Code.PROTOCOL_VIOLATION,
    ),
    "a list with a wrong count": (
        sends(*GOOD, wire.frame(wire.Kind.TAGGED, struct.pack("<QQ", 0, 1 << 60), 1 | 1 << 56)),
        Code.PROTOCOL_VIOLATION,
    ),
    "data that contradicts itself": (
        sends(*GOOD, packed(1, b"\xff" * len(BODY)), end(2)),
        Code.DATA_CORRUPT,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_refuses_a_server_that_sends(name: str) -> None:
    script, code = BROKEN[name]
    with FakeServer(script) as server, pytest.raises(DissociatedError) as refused:
        read(server.path)
    assert code is None or refused.value.code is code, refused.value
    del refused


@pytest.mark.parametrize("seed", range(30))
def test_refuses_damaged_streams(seed: int) -> None:
    """One byte of a good stream is wrong: an error or other data, never anything worse."""
    random_ = random.Random(seed)
    stream = bytearray(b"".join((*GOOD, packed(1, BODY), end(2))))
    for _ in range(random_.randint(1, 3)):
        stream[random_.randrange(len(stream))] ^= 1 << random_.randrange(8)
    with FakeServer(sends(bytes(stream))) as server:
        try:
            read(server.path).to_pylist()
        except (DissociatedError, UnicodeDecodeError, pa.ArrowException):
            pass


@pytest.mark.parametrize("seed", range(10))
def test_refuses_random_bytes(seed: int) -> None:
    noise = random.Random(seed).randbytes(500)
    with FakeServer(sends(noise)) as server, pytest.raises(DissociatedError):
        read(server.path)
    with FakeServer(sends(), greeting=noise) as server, pytest.raises(DissociatedError):
        read(server.path)


def test_a_silent_server_is_noticed() -> None:
    def script(connection: socket.socket) -> None:
        connection.sendall(START)
        while connection.recv(4096):
            pass  # until the client leaves

    server = FakeServer(script, greeting=fakes.IMPATIENT)
    with server, pytest.raises(DissociatedError) as refused:
        read(server.path)
    assert refused.value.code is Code.TIMED_OUT


def test_a_server_that_beats_is_waited_for() -> None:
    limit = SILENT_INTERVALS * fakes.IMPATIENT_MS / 1000
    for _ in range(20):
        silences: list[float] = []

        def script(connection: socket.socket, silences: list[float] = silences) -> None:
            started = beaten = time.monotonic()
            while beaten - started < 1.5 * limit:
                time.sleep(limit / 20)
                connection.sendall(wire.frame(wire.Kind.HEARTBEAT))
                silences.append(time.monotonic() - beaten)
                beaten = time.monotonic()
            connection.sendall(b"".join((*GOOD, packed(1, BODY), end(2))))

        with FakeServer(script, greeting=fakes.IMPATIENT) as server:
            try:
                assert read(server.path).to_batches()[0].equals(BATCH)
                return
            except DissociatedError as e:
                failure = e
        # A machine that let the server sleep for so long has shown nothing.
        assert max(silences, default=limit) > limit / 2, failure
    pytest.fail(f"this machine is too busy to beat every {fakes.IMPATIENT_MS} ms")


def test_takes_metadata_and_bodies_in_any_order() -> None:
    batches = [pa.record_batch({"x": [i] * 10}) for i in range(50)]
    items = encoded(*batches)
    frames = [metadata(i, flatbuffer) for i, (flatbuffer, _, _) in enumerate(items)]
    frames += [packed(i, body) for i, (_, body, _) in enumerate(items) if i]
    frames.append(end(len(items)))
    for seed in range(10):
        random.Random(seed).shuffle(frames)
        with FakeServer(sends(*frames)) as server:
            assert read(server.path).equals(pa.Table.from_batches(batches)), f"seed={seed}"


FORMS = {
    "each buffer of the metadata": PAIRS,
    "the whole body as one": [(address(0), len(BODY))],
    "only buffers with bytes": [p for p in PAIRS if p[1]],
}


@pytest.mark.parametrize("form", FORMS)
def test_takes_every_form_of_a_buffer_list(form: str) -> None:
    pairs = FORMS[form]
    with FakeServer(shows(BODY, *GOOD, listed(1, *pairs), end(2))) as server:
        table = read(server.path)
        assert table.to_batches()[0].equals(BATCH)
        del table
    assert server.freed() == [a for a, n in pairs if n]


def test_copies_what_arrow_cannot_take_in_place() -> None:
    """Buffers at odd addresses, and a batch that lies in two segments."""

    def script(connection: socket.socket) -> None:
        with fakes.memory(b"x" + BODY) as odd, fakes.memory(BODY) as even:
            fakes.send_segment(connection, odd, 1)
            fakes.send_segment(connection, even, 2)
            shifted = [(a + 1 if n else 0, n) for a, n in PAIRS]
            other = [(a + (1 << 40) if n else 0, n) for a, n in PAIRS]
            mixed = [shifted[0], *other[1:]]
            parts = (*GOOD, listed(1, *shifted), metadata(2, DATA), listed(2, *mixed), end(3))
            connection.sendall(b"".join(parts))

    with FakeServer(script) as server, dissociated.connect(server.path) as client:
        reader = client.open("x")
        assert [b.equals(BATCH) for b in reader] == [True, True]
        assert reader.statistics.client_copied_bytes > 0
    assert len(server.freed()) == 2 * sum(1 for _, n in PAIRS if n)


def test_a_location_of_another_server_is_refused_before_anything_is_said() -> None:
    from dissociated._channel import Channel

    for parameter in ("host=" + "0" * 32, "want_data=1", "free_data=1", "remote_handle=AAAA"):
        silent = FakeServer(lambda c: None, greeting=wire.frame(1, fakes.HELLO.encode()))
        with silent as server, pytest.raises(DissociatedError, match="not the server") as refused:
            Channel(server.path, wire.DissociatedUri.parse(f"shm://{server.path}?{parameter}"))
        assert refused.value.code is Code.UNAVAILABLE
        assert server.received == b""
        del refused
