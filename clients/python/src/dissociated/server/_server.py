"""A server of named streams."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any, Optional

import pyarrow as pa

from ..client import LIST_TICKET, STAT_TICKET
from ..errors import Code, DissociatedError
from ..wire import FLIGHT
from ._connection import Connection
from ._listener import Listener
from ._memory import MemoryLimit, Pool
from ._offers import Offer, Offers
from ._resident import ResidentStream
from ._sources import Batches, Catalogue, Streams, open_source
from ._streams import Inline, MetadataPath, Separate, send_live, send_resident

DEFAULT_MEMORY = 4 << 30
DEFAULT_LEASE_LIMIT = 256 << 20
_JOIN_SECONDS = 5.0


class Server:
    """Serves named streams by shared memory and by Flight, until it is closed.

    Tables, batches and files are copied once, at their first read, into sealed memory and kept.
    Functions are called for each reader and may give a table, a ``RecordBatchReader`` or anything
    with ``__arrow_c_stream__``.

    :param streams: names and what they stand for, or a function from a name to that
    :param flight: the Flight URI to listen on, port 0 picking a free one; None for no Flight
    :param socket: path of the Unix socket; None for a new one in a new 0700 folder
    :param memory: bytes of memory shared with all clients together
    :param lease_limit: bytes that one stream may have lent; data that stays does not count
    :param advertise: ``asked`` shows locations to clients that ask for them, ``always`` to all
    :param allow_uids: further users that may connect to the socket
    :param direct: whether names can be asked for on the socket, without a Flight call; default:
        unless Flight authenticates
    :param flight_options: for ``pyarrow.flight.FlightServerBase``: auth_handler, middleware,
        tls_certificates, ...
    """

    def __init__(
        self,
        streams: Streams,
        *,
        flight: Optional[str] = "grpc://127.0.0.1:0",
        socket: Optional[str] = None,
        memory: int = DEFAULT_MEMORY,
        lease_limit: int = DEFAULT_LEASE_LIMIT,
        advertise: str = "asked",
        allow_uids: Iterable[int] = (),
        direct: Optional[bool] = None,
        **flight_options: Any,
    ) -> None:
        if advertise not in ("asked", "always"):
            raise DissociatedError(Code.INVALID_ARGUMENT, f"unknown advertise={advertise}")
        self.catalogue = Catalogue(streams)
        self.advertises = advertise == "always"
        self.offers = Offers()
        self._limit = MemoryLimit(memory)
        self._resident: dict[str, ResidentStream] = {}
        self._resident_lock = threading.Lock()
        self._too_large: set[str] = set()
        self._pools: dict[tuple[int, str], tuple[Pool, set[Connection]]] = {}
        self._pools_lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._closed = threading.Event()
        secured = bool(flight_options.get("auth_handler") or flight_options.get("middleware"))
        self._direct = not secured if direct is None else direct
        uids = frozenset({os.geteuid(), 0, *allow_uids})
        self._listener = Listener(socket, uids, lease_limit, self._claim, self._ended)
        self._service: Any = None
        self.uri: Optional[str] = None
        if flight is not None:
            try:
                self._start_flight(flight, flight_options)
            except BaseException:
                self._listener.close()
                raise

    def _start_flight(self, uri: str, options: dict[str, Any]) -> None:
        from ._flight import FlightService

        try:
            self._service = FlightService(self, uri, options)
        except (pa.ArrowException, OSError) as e:
            text = " ".join(str(e).split())
            raise DissociatedError(Code.UNAVAILABLE, f"cannot listen: {text}, uri={uri}") from e
        if uri.startswith("grpc+unix"):
            self.uri = uri
        else:
            self.uri = f"{uri.rpartition(':')[0]}:{self._service.port}"

    @property
    def socket(self) -> str:
        """The path of the Unix socket."""
        return self._listener.path

    @property
    def location(self) -> str:
        """The location that clients of this host are shown."""
        return self._listener.location

    # ---- what is served

    def describe(self, name: str) -> tuple[pa.Schema, int, int]:
        """Schema, rows and bytes of a stream, without reading it; -1 where they are not known."""
        found = self.catalogue.source(name)
        rows, size = self._size(name, found)
        if isinstance(found, (pa.Table, pa.RecordBatch)):
            return found.schema, rows, size
        source = open_source(name, found)
        try:
            return source.schema, rows, size
        finally:
            source.close()

    def _size(self, name: str, source: Any) -> tuple[int, int]:
        resident = self._resident.get(name)
        if resident is not None:
            return resident.rows, resident.bytes
        if isinstance(source, (pa.Table, pa.RecordBatch)):
            return source.num_rows, source.nbytes
        return -1, -1

    def list(self) -> list[dict[str, Any]]:
        """The names that are served."""
        entries = []
        for name in self.catalogue.names():
            rows, size = self._size(name, self.catalogue.source(name))
            kept = self._resident.get(name)
            entries.append(
                {
                    "name": name,
                    "rows": rows,
                    "batches": kept.batches if kept else -1,
                    "bytes": size,
                    "resident": "yes" if kept else "no",
                }
            )
        return entries

    def stat(self) -> dict[str, Any]:
        """Who holds which leases: one entry for each data connection."""
        streams = [connection.describe() for connection in self._listener.connections]
        resident = sum(stream.bytes for stream in list(self._resident.values()))
        memory = {
            "location": self.location,
            "memory_limit": self._limit.limit,
            "memory_reserved": self._limit.used,
            "memory_used": resident + sum(stream["leased_bytes"] for stream in streams),
        }
        return {"streams": streams, "transports": [memory]}

    def _resident_stream(self, name: str) -> Optional[ResidentStream]:
        """The kept form of a stream; None when it is not one that is kept or does not fit."""
        if not self.catalogue.is_resident(name) or name in self._too_large:
            return None
        with self._resident_lock:
            known = self._resident.get(name)
            if known is None:
                source = open_source(name, self.catalogue.source(name))
                try:
                    known = ResidentStream(self._limit, source)
                except DissociatedError as e:
                    if e.code is not Code.RESOURCE_EXHAUSTED:
                        raise
                    self._too_large.add(name)
                    return None
                self._resident[name] = known
            return known

    # ---- streams

    def _claim(self, connection: Connection, identifier: bytes) -> None:
        """A client asks for a stream; runs on the poller, which must not wait."""
        offer = self.offers.claim(identifier)
        if offer is not None:
            offer.connection = connection
            connection.identity = offer.identity
            name = offer.name
        elif not self._direct:
            raise DissociatedError(Code.NOT_FOUND, "no such stream: the token is not good any more")
        else:
            name = _direct_name(identifier)
        connection.stream = name
        thread = threading.Thread(
            target=self._produce, args=(connection, name, offer), name="dissociated-producer"
        )
        thread.daemon = True
        self._threads.add(thread)
        thread.start()

    def _produce(self, connection: Connection, name: str, offer: Optional[Offer]) -> None:
        error: Optional[DissociatedError] = None
        path: MetadataPath = Inline()
        if offer is not None and offer.mode == FLIGHT:
            path = Separate(offer.send)
            connection.metadata = "flight"
        connection.state = "streaming"
        try:
            self._stream(connection, name, path)
        except DissociatedError as e:
            error = e
        except Exception as e:
            error = DissociatedError(Code.INTERNAL, f"stream failed: {e!r}, name={name}")
        connection.state = "draining"
        try:
            if offer is not None:
                offer.finished = True
                offer.finish(error)
            if error is not None:
                connection.fail(error)
        finally:
            self._threads.discard(threading.current_thread())

    def _stream(self, connection: Connection, name: str, path: MetadataPath) -> None:
        system = {LIST_TICKET.decode(): self._list_table, STAT_TICKET.decode(): self._stat_table}
        if name in system:
            source = open_source(name, system[name])
        else:
            resident = self._resident_stream(name)
            if resident is not None:
                send_resident(connection, path, resident)
                return
            source = open_source(name, self.catalogue.source(name))
        try:
            connection.pool = self._pool(connection)
        except BaseException:
            source.close()
            raise
        send_live(connection, path, _stopping(source, self._closed), connection.pool)

    def _list_table(self) -> pa.Table:
        numbers = [(key, pa.int64()) for key in ("rows", "batches", "bytes")]
        schema = pa.schema([("name", pa.utf8()), *numbers, ("resident", pa.utf8())])
        return pa.Table.from_pylist(self.list(), schema)

    def _stat_table(self) -> pa.Table:
        # The client that asks is an entry itself, so that there is always one.
        return pa.Table.from_pylist(self.stat()["streams"])

    def _pool(self, connection: Connection) -> Pool:
        """The memory of the connection's trust domain."""
        domain = (connection.uid, connection.identity)
        with self._pools_lock:
            pool, members = self._pools.setdefault(domain, (Pool(self._limit), set()))
            members.add(connection)
            gone = connection.is_closed
        if gone:
            self._ended(connection)
            raise DissociatedError(Code.UNAVAILABLE, "the client is gone")
        return pool

    def _ended(self, connection: Connection) -> None:
        """A connection is over; with the last one of a domain its memory goes."""
        domain = (connection.uid, connection.identity)
        with self._pools_lock:
            pool, members = self._pools.get(domain, (None, set()))
            members.discard(connection)
            if pool is not None and not members:
                del self._pools[domain]
                pool.close()

    # ---- the end

    def wait(self) -> None:
        """Waits until the server is closed."""
        self._closed.wait()

    def close(self) -> None:
        """Ends all streams, connections and calls and gives all memory back. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._service is not None:
            self._service.begin_close()
        self._listener.close()
        for thread in list(self._threads):
            thread.join(_JOIN_SECONDS)
        if self._service is not None:
            self._service.close()
        for resident in self._resident.values():
            resident.close()
        self._resident.clear()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(streams: Streams, **options: Any) -> Server:
    """Starts a server; see :class:`Server` for the options."""
    return Server(streams, **options)


def _direct_name(identifier: bytes) -> str:
    try:
        return identifier.decode("utf-8")
    except UnicodeDecodeError as e:
        raise DissociatedError(Code.NOT_FOUND, "no such stream, and no token that is good") from e


def _stopping(source: Batches, closed: threading.Event) -> Batches:
    """The source until the server closes."""

    def batches() -> Any:
        for pair in source:
            if closed.is_set():
                raise DissociatedError(Code.UNAVAILABLE, "the server is closing")
            yield pair

    return Batches(source.schema, batches(), source.close)
