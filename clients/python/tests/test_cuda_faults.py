"""Device memory that is gone, not what it says or not where it says."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from conftest import wait_until
from fakes import BATCH, FakeServer, encoded, end, listed, metadata, packed
from standin import SIZE, UUID, Exporter, StandIn

from dissociated import Code, DissociatedError, _cuda
from dissociated._channel import Channel
from dissociated._device_memory import DeviceImport
from dissociated._device_reader import DeviceReader, InPlace
from dissociated.wire.cuda import CudaLocation, DeviceMemory

(SCHEMA, _, _), (DATA, BODY, ITEM) = encoded()
LAYOUT = ITEM.message.buffers()
PAIRS = list(zip(LAYOUT[0::2], LAYOUT[1::2]))
PAIRS = [pair if pair[1] else (0, 0) for pair in PAIRS]
START = metadata(0, SCHEMA) + metadata(1, DATA)


def sends(*parts: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"".join(parts))


def opened(server: FakeServer, memory: Any) -> DeviceReader:
    def source() -> InPlace:
        channel = Channel(server.path)
        try:
            shown = None if memory is None else DeviceImport.open(memory)
            channel.want(b"x")
        except BaseException:
            channel.kill()
            raise
        return InPlace(channel, shown, None, "inline")

    return DeviceReader([source], [])


def read(server: FakeServer, memory: Any) -> list[pa.RecordBatch]:
    with opened(server, memory) as reader:
        return [batch.copy_to_host() for batch in reader]


@pytest.fixture
def exporter(cuda: StandIn) -> Any:
    with Exporter(cuda, BODY) as started:
        yield started


def test_frees_after_the_work_and_closes_before_the_connection(
    exporter: Exporter, cuda: StandIn
) -> None:
    with FakeServer(sends(START, listed(1, *PAIRS), end(2))) as server:
        reader = opened(server, exporter.memory)
        (batch,) = reader
        reader.close()
        assert server.freed() == [] and cuda.live()["live.imports"] == 1
        assert batch.copy_to_host().equals(BATCH)
        batch.close()
        assert cuda.live()["live.imports"] == 0
    assert sorted(server.freed()) == sorted(a for a, n in PAIRS if n)


WRONG = {
    "an offset beyond": [(a + SIZE, n) if n else (a, n) for a, n in PAIRS],
    "a length beyond": [*PAIRS[:-1], (PAIRS[-1][0], SIZE)],
    "the last byte beyond": [*PAIRS[:-1], (SIZE - PAIRS[-1][1] + 1, PAIRS[-1][1])],
    "an offset that wraps": [*PAIRS[:-1], ((1 << 64) - 1, PAIRS[-1][1])],
    "too few buffers": PAIRS[:-1],
    "shorter than said": [*PAIRS[:-1], (PAIRS[-1][0], PAIRS[-1][1] - 1)],
}


@pytest.mark.parametrize("name", WRONG)
def test_refuses_bodies_that_lie_elsewhere(name: str, exporter: Exporter, cuda: StandIn) -> None:
    with FakeServer(sends(START, listed(1, *WRONG[name]), end(2))) as server:
        if name == "a length beyond":  # longer than needed is no fault while it is inside
            assert read(server, exporter.memory)[0].equals(BATCH)
            return
        with pytest.raises(DissociatedError) as refused:
            read(server, exporter.memory)
        assert refused.value.code is Code.PROTOCOL_VIOLATION, refused.value.message


def changed(**numbers: tuple[int, ...]) -> bytes:
    """The batch's metadata with other nodes, or another number of rows."""
    patched, layout = bytearray(DATA), ITEM.message._layout
    for i, value in enumerate(numbers.get("nodes", ())):
        at = layout.nodes_at + 8 * i
        patched[at : at + 8] = value.to_bytes(8, "little", signed=True)
    for value in numbers.get("rows", ()):
        at = layout.length_at
        patched[at : at + 8] = value.to_bytes(8, "little", signed=True)
    return bytes(patched)


@pytest.mark.parametrize(
    "flatbuffer",
    [
        changed(nodes=(4, 0)),
        changed(nodes=(3, 4)),
        changed(nodes=(-3, 0)),
        changed(nodes=(1 << 62, 0, 1 << 62, 0), rows=(1 << 62,)),
        changed(rows=(2,)),
        changed(rows=(-1,)),
    ],
)
def test_refuses_batches_that_do_not_fit(
    flatbuffer: bytes, exporter: Exporter, cuda: StandIn
) -> None:
    start = metadata(0, SCHEMA) + metadata(1, flatbuffer)
    for body in (listed(1, *PAIRS), packed(1, BODY)):
        with FakeServer(sends(start, body, end(2))) as server:
            with pytest.raises(DissociatedError) as refused:
                read(server, exporter.memory)
            assert refused.value.code is Code.PROTOCOL_VIOLATION, refused.value.message


def test_refuses_what_it_cannot_read_there(exporter: Exporter, cuda: StandIn) -> None:
    dictionary = pa.record_batch({"x": pa.array(["a"]).dictionary_encode()})
    schema = encoded(dictionary)[0][0]
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    large = pa.record_batch({"i": pa.array(range(1000))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, large.schema, options=options) as writer:
        writer.write_batch(large)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    flatbuffers = [message.metadata.to_pybytes() for message in messages]
    for parts, what in (
        ((metadata(0, schema),), "dictionaries"),
        (
            (
                metadata(0, flatbuffers[0]),
                metadata(1, flatbuffers[1]),
                packed(1, messages[1].body.to_pybytes()),
                end(2),
            ),
            "compressed bodies",
        ),
    ):
        with FakeServer(sends(*parts)) as server:
            with pytest.raises(DissociatedError, match=what) as refused:
                read(server, exporter.memory)
            assert refused.value.code is Code.UNSUPPORTED
    server = FakeServer(sends(START, listed(1, *PAIRS), end(2)))
    with server, pytest.raises(DissociatedError, match="names no device memory"):
        read(server, None)


def test_copies_packed_bodies_to_the_device(exporter: Exporter, cuda: StandIn) -> None:
    with FakeServer(sends(START, packed(1, BODY), end(2))) as server:
        reader = opened(server, exporter.memory)
        (batch,) = reader
        assert reader.copied_bytes == len(BODY)
        reader.close()
        assert batch.copy_to_host().equals(BATCH)
        assert all(
            c.buffer(1).__cuda_array_interface__["data"][0] % 256 == 0 for c in batch.columns()
        )


def test_refuses_data_that_is_no_table(cuda: StandIn) -> None:
    damaged = bytearray(BODY)
    at = PAIRS[3][0]  # the offsets of the strings
    damaged[at : at + 16] = b"\x7f" * 16
    with (
        Exporter(cuda, bytes(damaged)) as exporter,
        FakeServer(sends(START, listed(1, *PAIRS), end(2))) as server,
    ):
        with pytest.raises(DissociatedError) as refused:
            read(server, exporter.memory)
        assert refused.value.code is Code.DATA_CORRUPT
        del refused  # and with it what its traceback holds
        gc.collect()
        assert wait_until(lambda: cuda.live()["live.imports"] == 0)


def test_refuses_memory_that_cannot_be_had(exporter: Exporter, cuda: StandIn) -> None:
    memory = exporter.memory
    assert memory.handle is not None
    garbage = bytes(memory.handle[:20]) + bytes([memory.handle[20] ^ 1]) + memory.handle[21:]
    for wrong, what in (
        (memory._replace(handle=bytes(64)), "CUDA_ERROR_INVALID_VALUE"),
        (memory._replace(handle=garbage), "CUDA_ERROR_INVALID_VALUE"),
        (memory._replace(handle=None), "it has no handle"),
        (memory._replace(device=UUID[:-1] + "9"), "does not see the device"),
        (memory._replace(event=bytes(64)), "CUDA_ERROR_INVALID_HANDLE"),
    ):
        with pytest.raises(DissociatedError, match=what) as refused:
            DeviceImport.open(wrong)
        assert refused.value.code is Code.UNAVAILABLE
        assert f"exporter={memory.exporter}" in refused.value.message
    exporter.kill()
    with pytest.raises(DissociatedError, match="CUDA_ERROR_INVALID_HANDLE"):
        DeviceImport.open(memory)


def test_an_exporter_that_is_killed_harms_nobody(exporter: Exporter, cuda: StandIn) -> None:
    with FakeServer(sends(START, listed(1, *PAIRS))) as server:
        reader = opened(server, exporter.memory)
        batch = reader.read_next_batch()
        exporter.kill()
        with pytest.raises(DissociatedError) as refused:
            reader.read_next_batch()
        assert refused.value.code is Code.UNAVAILABLE
        assert batch.copy_to_host().equals(BATCH), "the memory lasts as long as it is open"
        reader.close()
        batch.close()
        assert cuda.live()["live.imports"] == 0


def test_memory_is_told_by_its_exporter_not_by_its_handle(cuda: StandIn) -> None:
    with Exporter(cuda, BODY) as first, Exporter(cuda, BODY[::-1]) as second:
        a, b = DeviceImport.open(first.memory), DeviceImport.open(second.memory)
        again = DeviceImport.open(first.memory._replace(handle=bytes(64)))
        assert again is a and a.resolve(0, 1) != b.resolve(0, 1)
        for one in (a, b, again):
            one.close()
        assert wait_until(lambda: cuda.live()["live.imports"] == 0)


def test_a_device_without_room_says_so(cuda: StandIn) -> None:
    with pytest.raises(DissociatedError, match="cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEM") as full:
        _cuda.device(0).allocate(1 << 40)
    assert full.value.code is Code.RESOURCE_EXHAUSTED
    with pytest.raises(DissociatedError, match="no such device, device=7 devices=1"):
        _cuda.device(7)
    with pytest.raises(DissociatedError, match="not memory of a device"):
        _cuda.device_at(4096)


def test_locations_without_memory_are_no_device_memory() -> None:
    location = CudaLocation.parse("cuda:///s?want_data=1&free_data=2")
    assert location.memory is None and str(location.carrier) == "shm:///s?want_data=1&free_data=2"
    assert DeviceMemory("a", "b").handle is None
