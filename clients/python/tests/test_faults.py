"""Peers that die, lie or stop; and what happens when shared memory cannot be had."""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import subprocess
import sys

import data
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from conftest import LONGEST, ServerProcess, targets, wait_until

import dissociated
from dissociated import Code, DissociatedError, wire
from dissociated._joiner import Joiner

HOLDER = """
import sys, dissociated
with dissociated.connect(sys.argv[1]) as client:
    batches = list(client.get(sys.argv[2]))
    print(len(batches), flush=True)
    sys.stdin.read()
"""


# ---- peers that die


@pytest.mark.parametrize("way", ["socket", "inline", "flight"])
def test_a_killed_server_is_noticed_at_once(own_server: ServerProcess, way: str) -> None:
    target, options = targets(own_server)[way]
    with dissociated.connect(target, **options) as client, client.get("endless") as reader:
        held = reader.read_next_batch()
        os.kill(own_server.process.pid, signal.SIGKILL)
        with pytest.raises(DissociatedError) as gone:
            for _ in reader:
                pass
        # One that is only silent is given up as TIMED_OUT.
        assert gone.value.code in (Code.UNAVAILABLE, Code.INTERNAL), gone.value
        assert held.to_pylist() == [{"x": 0}], "what was read stays readable"
        del held


@pytest.mark.parametrize("name", ["numbers", "live numbers"])
@pytest.mark.parametrize("way", ["socket", "flight"])
def test_a_killed_client_gives_everything_back(server: ServerProcess, way: str, name: str) -> None:
    target, _ = targets(server)[way]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, target, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None and holder.stdout is not None
    assert holder.stdout.readline() == b"10\n"
    assert server.leases() > 0
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    assert wait_until(lambda: server.leases() == 0)
    with dissociated.connect(server.socket) as client:
        assert client.read_all(name).equals(data.numbers()), "others are served on"


def test_a_stopped_consumer_stops_nobody_else(server: ServerProcess) -> None:
    with dissociated.connect(server.socket) as client, client.get("large") as idle:
        assert idle.schema is not None
        assert client.read_all("numbers").equals(data.numbers())


# ---- clients that lie


def connect_raw(server: ServerProcess) -> tuple[socket.socket, wire.Hello]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(LONGEST)
    connection.connect(server.socket)
    frame = connection.recv(wire.HEADER_LENGTH + 64, socket.MSG_WAITALL)
    return connection, wire.Hello.parse(frame[wire.HEADER_LENGTH :])


def read_frames(connection: socket.socket) -> list[tuple[int, bytes]]:
    """Kind and payload of all frames until the server closes."""
    received = bytearray()
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    frames = []
    while len(received) >= wire.HEADER_LENGTH:
        length, _, kind = wire.FRAME_HEADER.unpack_from(received)
        stop = wire.HEADER_LENGTH + length
        frames.append((kind, bytes(received[wire.HEADER_LENGTH : stop])))
        del received[:stop]
    return frames


@pytest.mark.parametrize(
    "message",
    [
        struct.pack("<QQQ", 1 << 60, 1, 3),
        struct.pack("<QQQ", 2 << 20, 1, 3),
        struct.pack("<QQQ", 0, 0, 77),
        struct.pack("<QQQ", 0, 0, 6),
        wire.frame(wire.Kind.TAGGED, b"x", 12345),
        wire.frame(wire.Kind.UNTAGGED, wire.end_of_stream(0)),
        b"\xff" * 100,
    ],
)
def test_refuses_a_client_that_breaks_the_protocol(server: ServerProcess, message: bytes) -> None:
    connection, _ = connect_raw(server)
    with connection:
        connection.sendall(message)
        frames = read_frames(connection)
    kind, payload = frames[-1]
    assert kind == wire.Kind.ERROR
    assert wire.parse_error(payload).code is Code.PROTOCOL_VIOLATION
    assert wait_until(lambda: not server.stat()["streams"])


def test_refuses_a_second_request_and_descriptors(server: ServerProcess) -> None:
    connection, hello = connect_raw(server)
    with connection:
        connection.sendall(wire.frame(wire.Kind.TAGGED, b"slow", hello.want_data) * 2)
        assert read_frames(connection)[-1][0] == wire.Kind.ERROR
    connection, hello = connect_raw(server)
    with connection:
        rights = struct.pack("i", connection.fileno())
        request = wire.frame(wire.Kind.TAGGED, b"slow", hello.want_data)
        connection.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        assert read_frames(connection)[-1][0] == wire.Kind.ERROR
    assert wait_until(lambda: not server.stat()["streams"])


def test_a_refusal_is_the_last_that_a_client_hears(server: ServerProcess) -> None:
    """Also while its stream is sent: often, since it depends on which thread is faster."""
    for attempt in range(100):
        connection, hello = connect_raw(server)
        with connection:
            connection.sendall(wire.frame(wire.Kind.TAGGED, b"slow", hello.want_data) * 2)
            kinds = [wire.Kind(kind).name for kind, _ in read_frames(connection)]
        assert kinds[-1:] == ["ERROR"] and kinds.count("ERROR") == 1, f"{attempt}: {kinds}"
    assert wait_until(lambda: not server.stat()["streams"])


def test_frees_of_what_was_never_given_touch_nothing(server: ServerProcess) -> None:
    with dissociated.connect(server.socket) as client:
        batches = list(client.get("live numbers"))
        leased = server.leases()
        connection, hello = connect_raw(server)
        with connection:
            # Every address that the other client may hold, and some nobody has.
            guesses = [1 << 40 | offset for offset in range(0, 1 << 20, 64)]
            for i in range(0, len(guesses), wire.MAX_FREES):
                payload = wire.encode_free_list(guesses[i : i + wire.MAX_FREES])
                connection.sendall(wire.frame(wire.Kind.TAGGED, payload, hello.free_data))
            assert wait_until(
                lambda: any(c["refused_frees"] == len(guesses) for c in server.stat()["streams"])
            )
        assert server.leases() == leased
        assert pa.Table.from_batches(batches).equals(data.numbers())
        batches.clear()


def test_a_token_is_good_once(server: ServerProcess) -> None:
    with flight.connect(server.uri) as client:
        # A call that does not end by itself, so that it can be cancelled.
        command = wire.ExchangeCommand(wire.INLINE, b"endless").encode()
        options = flight.FlightCallOptions(headers=[(b"x-dissociated-accept", b"shm")])
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command), options)
        writer.done_writing()
        offer = wire.ExchangeOffer.parse(reader.read_chunk().app_metadata.to_pybytes())
        first, hello = connect_raw(server)
        second, _ = connect_raw(server)
        with first, second:
            first.sendall(wire.frame(wire.Kind.TAGGED, offer.token, hello.want_data))
            assert first.recv(1)
            second.sendall(wire.frame(wire.Kind.TAGGED, offer.token, hello.want_data))
            kind, payload = read_frames(second)[-1]
            assert kind == wire.Kind.ERROR
            assert wire.parse_error(payload).code is Code.NOT_FOUND
        reader.cancel()
        with pytest.raises(flight.FlightCancelledError):
            writer.close()


# ---- Flight


def test_ordinary_flight_clients_notice_nothing(server: ServerProcess) -> None:
    with flight.connect(server.uri) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path("numbers"))
        assert [e.locations for e in info.endpoints] == [[]]
        assert info.schema.equals(data.numbers().schema)
        assert client.do_get(info.endpoints[0].ticket).read_all().equals(data.numbers())
        assert list(client.list_actions()) == []
        assert all(e.locations == [] for i in client.list_flights() for e in i.endpoints)
        with pytest.raises(pa.ArrowKeyError):
            client.get_flight_info(flight.FlightDescriptor.for_path("no such name"))
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"other"))
        writer.done_writing()
        with pytest.raises(NotImplementedError):
            reader.read_chunk()
        with pytest.raises(NotImplementedError):
            writer.close()


class Elsewhere(flight.FlightServerBase):
    """A Flight server whose shared memory cannot be reached."""

    def __init__(self, locations: list[str]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._locations = locations

    def get_flight_info(self, context: object, descriptor: object) -> flight.FlightInfo:
        endpoint = flight.FlightEndpoint(b"t", self._locations)
        return flight.FlightInfo(data.numbers().schema, descriptor, [endpoint], -1, -1)

    def do_get(self, context: object, ticket: object) -> flight.FlightDataStream:
        return flight.RecordBatchStream(data.numbers())


@pytest.mark.parametrize(
    "locations",
    [
        [],
        ["shm:///nowhere/socket?want_data=1", "arrow-flight-reuse-connection://?"],
        ["ucx://127.0.0.1:1?want_data=1", "arrow-flight-reuse-connection://?"],
        ["shm:///nowhere?want_data=x", "arrow-flight-reuse-connection://?"],
    ],
)
def test_falls_back_to_flight_and_says_why(
    locations: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dissociated")
    with Elsewhere(locations) as server:
        uri = f"grpc://127.0.0.1:{server.port}"
        with dissociated.connect(uri) as client, client.get("x") as reader:
            assert reader.read_all().equals(data.numbers())
            assert reader.statistics.via == "flight"
        assert "falling back to DoGet" in caplog.text
        with dissociated.connect(uri, via="shm") as client, pytest.raises(DissociatedError):
            client.get("x")


def test_reads_partitions_tickets_and_endpoints(server: ServerProcess) -> None:
    expected = data.numbers()
    with dissociated.connect(server.uri) as client:
        with flight.connect(server.uri) as plain:
            options = flight.FlightCallOptions(headers=[(b"x-dissociated-accept", b"shm")])
            info = plain.get_flight_info(flight.FlightDescriptor.for_path("numbers"), options)
        assert [x.uri.decode().split(":")[0] for x in info.endpoints[0].locations] == [
            "shm",
            "arrow-flight-reuse-connection",
        ]
        twice = flight.FlightInfo(info.schema, info.descriptor, info.endpoints * 2, -1, -1)
        for what in (info, info.endpoints[0], info.endpoints[0].ticket, b"numbers"):
            with client.open(what) as reader:
                assert reader.read_all().equals(expected)
                assert reader.statistics.via == "shm"
        assert client.read_partition(info.serialize()).read_all().equals(expected)
        with client.open(twice) as reader:
            assert reader.read_all().num_rows == 2 * expected.num_rows
            assert reader.statistics.rows == 2 * expected.num_rows
        with pytest.raises(DissociatedError) as refused:
            client.read_partition(b"not a FlightInfo")
        assert refused.value.code is Code.INVALID_ARGUMENT


class Login(flight.ServerMiddlewareFactory):
    """Lets in who knows the token."""

    def start_call(self, info: object, headers: dict[str, list[str]]) -> None:
        if headers.get("authorization") != ["Bearer secret"]:
            raise flight.FlightUnauthenticatedError("who are you")


def test_authentication_holds_for_both_connections() -> None:
    with dissociated.serve({"t": data.numbers()}, middleware={"login": Login()}) as server:
        with dissociated.connect(server.uri, token="secret") as client:
            assert client.read_all("t").equals(data.numbers())
        with dissociated.connect(server.uri) as client, pytest.raises(DissociatedError) as no:
            client.get("t")
        assert no.value.code is Code.UNAUTHENTICATED
        with dissociated.connect(server.socket) as client, pytest.raises(DissociatedError) as no:
            client.get("t")
        assert no.value.code is Code.NOT_FOUND, "names alone open nothing here"


# ---- processes and sockets


def test_a_forked_child_frees_nothing_of_its_parent(server: ServerProcess) -> None:
    with dissociated.connect(server.socket) as client, client.get("numbers") as reader:
        batches = list(reader)
        open_reader = client.get("slow")

        def leased() -> list[int]:
            return [c["leases"] for c in server.stat()["streams"] if c["name"] == "numbers"]

        before = leased()
        child = os.fork()
        if child == 0:
            # Only os._exit: the child must not run the parent's tests.
            try:
                readable = batches[0].num_rows == 10_000
                batches.clear()
                open_reader.close()
                del open_reader
                os._exit(0 if readable else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert leased() == before and before[0] > 0
        assert next(open_reader).to_pylist() == [{"x": 0}], "the parent's stream goes on"
        open_reader.close()
        batches.clear()


def test_takes_the_place_of_a_dead_server_only(tmp_path: object) -> None:
    path = f"{tmp_path}/socket"
    with dissociated.serve({}, socket=path, flight=None) as server:
        assert server.uri is None
        assert os.stat(path).st_mode & 0o777 == 0o600
        with pytest.raises(DissociatedError, match="another server is there"):
            dissociated.serve({}, socket=path, flight=None)
    assert not os.path.exists(path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with pytest.raises(DissociatedError) as refused:
        dissociated.connect(path).get("x")
    assert refused.value.code is Code.UNAVAILABLE
    with dissociated.serve({"t": data.numbers()}, socket=path, flight=None):
        assert dissociated.connect(path).read_all("t").equals(data.numbers())
    with open(path, "w") as file:
        file.write("something else")
    with pytest.raises(DissociatedError, match="something else is there"):
        dissociated.serve({}, socket=path, flight=None)
    with pytest.raises(DissociatedError, match="not a socket"):
        dissociated.connect(path)


def test_serves_packed_when_there_is_no_room() -> None:
    with dissociated.serve({"t": data.numbers()}, memory=1 << 16, flight=None) as server:
        reader = dissociated.connect(server.socket).get("t")
        assert reader.read_all().equals(data.numbers())
        assert reader.statistics.body_types == [0]


# ---- arithmetic


def test_sequence_numbers_roll_over() -> None:
    last = 0xFFFF_FFFF
    joiner = Joiner(last - 1)
    flatbuffer = pa.ipc.read_message(pa.schema([]).serialize()).metadata.to_pybytes()
    for sequence in (0, last, 1, last - 1):
        joiner.metadata(wire.metadata_message(sequence, flatbuffer))
    joiner.metadata(wire.end_of_stream(2))
    for _ in range(4):
        assert joiner.next() is not None
    assert joiner.next() is None and joiner.is_complete
