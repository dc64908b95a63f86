"""Connecting to a server and opening its streams."""

from __future__ import annotations

import json
import logging
import os
import stat as stat_module
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Optional, Union
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as flight

from ._channel import Channel
from ._daemon import default_socket
from ._devices import DeviceStreams
from ._flight_call import FlightCall
from ._flight_errors import FLIGHT_ERRORS, from_flight
from ._flight_reader import ChainReader, DoGetReader
from ._objects import Objects
from ._shm_reader import ShmReader
from .errors import Code, DissociatedError
from .reader import Reader
from .wire import FLIGHT, INLINE, DissociatedUri, ExchangeCommand
from .wire.cuda import CUDA_SCHEME

logger = logging.getLogger("dissociated")

ACCEPT_HEADER = "x-dissociated-accept"
TARGET_HEADER = "x-dissociated-target"
STAT_ACTION = "dissociated.stat"
LIST_TICKET = b"$list"
STAT_TICKET = b"$stat"
REUSE_SCHEME = "arrow-flight-reuse-connection"
SCHEME = "shm"

_VIAS = ("auto", "shm", "flight")
_MODES = {"flight": FLIGHT, "inline": INLINE}

Target = Union[str, bytes, flight.FlightDescriptor, flight.Ticket, flight.FlightInfo, Any]


def connect(
    target: Optional[str] = None,
    *,
    via: str = "auto",
    metadata: Optional[str] = None,
    headers: Optional[Mapping[str, str]] = None,
    token: Optional[str] = None,
    tls_root_certs: Union[bytes, str, None] = None,
    timeout: Optional[float] = None,
) -> Client:
    """Connects to a server of streams, to a store, or to what is both.

    :param target: a Flight URI (``grpc://``, ``grpc+tls://``, ``grpc+unix://``) or the path of a
        server's Unix socket, over which a store is reached too. Without one: what the environment
        variable ``DISSOCIATED_SOCKET`` names, otherwise a store of this process's own, which ends
        with it and whose socket the variable then names for child processes
    :param via: ``shm`` for shared memory or an error, ``flight`` for plain Flight, ``auto`` for
        shared memory where possible
    :param metadata: ``flight`` sends metadata in a Flight call, ``inline`` on the data
        connection. Default: ``flight`` for Flight targets; a socket knows only ``inline``
    :param headers: sent with every Flight call
    :param token: a bearer token, sent with every Flight call
    :param tls_root_certs: PEM text, or the path of a PEM file
    :param timeout: seconds for each Flight call that is not a stream
    """
    if target is None:
        target = default_socket()
    return Client(target, via, metadata, headers or {}, token, tls_root_certs, timeout)


class Client(DeviceStreams, Objects):
    """A connection to one server. Streams and objects that it opened outlive it. Thread-safe.

    After a fork, the child may use it like its parent.
    """

    def __init__(
        self,
        target: str,
        via: str,
        metadata: Optional[str],
        headers: Mapping[str, str],
        token: Optional[str],
        tls_root_certs: Union[bytes, str, None],
        timeout: Optional[float],
    ) -> None:
        if via not in _VIAS:
            raise DissociatedError(Code.INVALID_ARGUMENT, f"unknown way: via={via}")
        if metadata is not None and metadata not in _MODES:
            raise DissociatedError(Code.INVALID_ARGUMENT, f"unknown metadata={metadata}")
        self.target = target
        self._via = via
        self._timeout = timeout
        self._tls = _pem(tls_root_certs)
        self._others: dict[str, Any] = {}
        self._flight: Any = None
        self._headers = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        if token is not None:
            self._headers.append((b"authorization", b"Bearer " + token.encode()))
        if target.startswith("grpc"):
            self._metadata = metadata or "flight"
            self._flight = self._connect_flight(target)
        else:
            if via == "flight" or metadata == "flight":
                raise DissociatedError(
                    Code.INVALID_ARGUMENT,
                    f"a socket knows no Flight; connect to a Flight URI, target={target}",
                )
            self._metadata = "inline"
            _check_socket(target)

    def _connect_flight(self, uri: str) -> Any:
        options = {"tls_root_certs": self._tls} if self._tls else {}
        try:
            return flight.connect(uri, **options)
        except FLIGHT_ERRORS as e:
            raise from_flight(f"cannot connect to {uri}", e) from e

    def _options(
        self, stream: bool = False, ask: bool = True, device: bool = False
    ) -> flight.FlightCallOptions:
        """Headers and timeout of a call; ``ask`` for what only this protocol's clients see.

        :param device: ask for device memory, too, where a server may bring the stream then
        """
        headers = list(self._headers)
        if ask:
            accepted = f"{SCHEME},{CUDA_SCHEME}" if device else SCHEME
            headers += [
                (ACCEPT_HEADER.encode(), accepted.encode()),
                (TARGET_HEADER.encode(), self.target.encode()),
            ]
        timeout = None if stream else self._timeout
        return flight.FlightCallOptions(timeout=timeout, headers=headers)

    # ---- opening streams

    @property
    def _is_socket(self) -> bool:
        return self._flight is None

    def get(self, name: str, *, timeout: Optional[float] = 0, device: Optional[str] = None) -> Any:
        """What has that name: of a store's objects what was put, otherwise a :class:`Reader`.

        :param timeout: how many seconds to wait for an object of that name; None for ever
        :param device: "cuda" for it in a GPU's memory, see :meth:`open_device`
        """
        if device is not None:
            return self._get_on(device, name, timeout)
        found, value = self._object(name, timeout)
        return value if found else self.open(name)

    def open(self, what: Target) -> Reader:
        """Opens the stream of a name, FlightDescriptor, Ticket or its bytes, FlightInfo or
        FlightEndpoint. The table of an object is such a stream, too.
        """
        if isinstance(what, str):
            if self._flight is None:
                return self._open_direct(what.encode("utf-8"))
            what = flight.FlightDescriptor.for_path(what)
        if isinstance(what, (bytes, flight.Ticket)):
            ticket = what if isinstance(what, bytes) else what.ticket
            if self._flight is None:
                return self._open_direct(ticket)
            return self._open_endpoint(flight.FlightEndpoint(ticket, []))
        if self._flight is None:
            if isinstance(what, flight.FlightDescriptor) and what.path:
                return self._open_direct(what.path[0])
            raise DissociatedError(
                Code.INVALID_ARGUMENT, "a socket serves names and tickets; connect to a Flight URI"
            )
        if isinstance(what, flight.FlightDescriptor):
            what = self._info(what)
        if isinstance(what, flight.FlightInfo):
            if not what.endpoints:
                raise DissociatedError(Code.NOT_FOUND, "nothing to read: it has no endpoints")
            openers = [partial(self._open_endpoint, endpoint) for endpoint in what.endpoints]
            return openers[0]() if len(openers) == 1 else ChainReader(iter(openers))
        if isinstance(what, flight.FlightEndpoint):
            return self._open_endpoint(what)
        raise DissociatedError(Code.INVALID_ARGUMENT, f"cannot open a {type(what).__name__}")

    def read_partition(self, partition: bytes) -> Reader:
        """Opens a serialised FlightInfo, as ADBC's ExecutePartitions gives for each partition."""
        try:
            return self.open(flight.FlightInfo.deserialize(partition))
        except FLIGHT_ERRORS as e:
            raise DissociatedError(
                Code.INVALID_ARGUMENT, f"partition refused: not a FlightInfo: {e}"
            ) from e

    def read_all(self, what: Target) -> pa.Table:
        """All of a stream as a table."""
        with self.open(what) as reader:
            return reader.read_all()

    def _info(self, descriptor: flight.FlightDescriptor, device: bool = False) -> flight.FlightInfo:
        try:
            options = self._options(ask=device or self._via != "flight", device=device)
            return self._flight.get_flight_info(descriptor, options)
        except FLIGHT_ERRORS as e:
            raise from_flight(f"cannot find {_describe(descriptor)}", e) from e

    def _open_direct(self, ticket: bytes) -> ShmReader:
        channel = Channel(self.target)
        try:
            channel.want(ticket)
            reader = ShmReader(channel)
            _ = reader.schema
            return reader
        except BaseException:
            channel.kill()
            raise

    def _open_endpoint(self, endpoint: flight.FlightEndpoint) -> Reader:
        locations = [location.uri.decode() for location in endpoint.locations]
        own = [uri for uri in locations if uri.startswith(SCHEME + ":")]
        if self._via != "flight":
            reader = self._try_shared(endpoint, locations, own)
            if reader is not None:
                return reader
        server = self._server_of(locations)
        try:
            stream = server.do_get(endpoint.ticket, self._options(stream=True, ask=False))
        except FLIGHT_ERRORS as e:
            raise from_flight("stream refused", e) from e
        return DoGetReader(stream)

    def _try_shared(
        self, endpoint: flight.FlightEndpoint, locations: list[str], own: list[str]
    ) -> Optional[ShmReader]:
        """Opens by shared memory, or None where plain Flight can be tried instead."""
        opened: list[bool] = []
        try:
            if locations and not own:
                raise DissociatedError(
                    Code.UNSUPPORTED, "no shared memory: the endpoint does not offer it"
                )
            return self._open_shared(endpoint, locations, own, opened)
        except DissociatedError as e:
            if self._via == "shm" or opened:
                raise
            logger.debug("falling back to DoGet: %s", e.message)
            return None

    def _open_shared(
        self,
        endpoint: flight.FlightEndpoint,
        locations: list[str],
        own: list[str],
        claimed: list[bool],
    ) -> ShmReader:
        """Pairs a DoExchange call with a data connection.

        ``claimed`` becomes true before the stream is claimed, which starts the producer.
        """
        channel = _first(own) if own else None
        call: Optional[FlightCall] = None
        try:
            command = ExchangeCommand(self._mode, endpoint.ticket.ticket)
            call = self._exchange(command, locations)
            offer = call.offer()
            if channel is None:
                channel = _first([u for u in offer.locations if u.startswith(SCHEME + ":")])
            claimed.append(True)
            channel.want(offer.token)
            reader = ShmReader(channel, call, self._metadata)
            _ = reader.schema
            return reader
        except BaseException:
            if call is not None:
                call.close(cancel=True)
            if channel is not None:
                channel.kill()
            raise

    @property
    def _mode(self) -> int:
        """How metadata comes, as it is said in an exchange."""
        return _MODES[self._metadata]

    def _exchange(
        self, command: ExchangeCommand, locations: list[str], device: bool = False
    ) -> FlightCall:
        """Asks the server of an endpoint for its stream."""
        try:
            options = self._options(stream=True, device=device)
            return FlightCall(self._server_of(locations), command, options)
        except FLIGHT_ERRORS as e:
            raise from_flight("stream refused", e) from e

    def _server_of(self, locations: list[str]) -> Any:
        """The Flight server that has an endpoint: this one, or another that must be asked."""
        others = [uri for uri in locations if uri.startswith("grpc")]
        reuse = any(uri.startswith(REUSE_SCHEME) for uri in locations)
        if reuse or not others or any(_same_server(uri, self.target) for uri in others):
            return self._flight
        uri = others[0]
        if uri not in self._others:
            self._others[uri] = self._connect_flight(uri)
        return self._others[uri]

    # ---- asking about the server

    def list(self) -> list[dict[str, Any]]:
        """What the server offers: a dictionary with at least ``name`` for each stream."""
        if self._flight is None:
            with self._open_direct(LIST_TICKET) as reader:
                return reader.read_all().to_pylist()
        try:
            return [_entry(info) for info in self._flight.list_flights(b"", self._options())]
        except FLIGHT_ERRORS as e:
            raise from_flight("cannot list", e) from e

    def stat(self) -> dict[str, Any]:
        """Who holds which leases: ``streams`` has one dictionary for each data connection."""
        if self._flight is None:
            with self._open_direct(STAT_TICKET) as reader:
                rows = reader.read_all().to_pylist()
            # The connection that asks is over when this is read.
            own = STAT_TICKET.decode()
            return {"streams": [row for row in rows if row["name"] != own]}
        try:
            results = list(self._flight.do_action(flight.Action(STAT_ACTION, b""), self._options()))
            return json.loads(results[0].body.to_pybytes())
        except (*FLIGHT_ERRORS, IndexError) as e:
            raise from_flight("cannot get statistics", e) from e

    def close(self) -> None:
        """Closes the connections. Streams that are open go on, and what was got stays."""
        self._close_store()
        for client in (self._flight, *self._others.values()):
            if client is not None:
                client.close()
        self._others.clear()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _first(uris: Iterable[str]) -> Channel:
    """The first location that can be reached and is the server it says."""
    failure = DissociatedError(Code.UNSUPPORTED, "no shared memory: the server offers no location")
    for uri in uris:
        try:
            location = DissociatedUri.parse(uri)
            return Channel(location.path, location)
        except DissociatedError as e:
            failure = e
    raise failure


def _pem(certificates: Union[bytes, str, None]) -> Optional[bytes]:
    if certificates is None or isinstance(certificates, bytes):
        return certificates
    if "-----BEGIN" in certificates:
        return certificates.encode("ascii")
    try:
        with open(certificates, "rb") as file:
            return file.read()
    except OSError as e:
        raise DissociatedError(
            Code.INVALID_ARGUMENT, f"certificates cannot be read: {e.strerror}, file={certificates}"
        ) from e


def _check_socket(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as e:
        raise DissociatedError(
            Code.UNAVAILABLE, f"cannot connect: {getattr(e, 'strerror', e)}, socket={path}"
        ) from e
    if not stat_module.S_ISSOCK(mode):
        raise DissociatedError(Code.UNAVAILABLE, f"cannot connect: not a socket, socket={path}")


def _same_server(first: str, second: str) -> bool:
    a, b = urlsplit(first), urlsplit(second)
    local = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}
    hosts = [local.get(u.hostname or "", u.hostname) for u in (a, b)]
    return hosts[0] == hosts[1] and a.port == b.port and a.path == b.path


def _describe(descriptor: flight.FlightDescriptor) -> str:
    if descriptor.path:
        return "name=" + "/".join(part.decode("utf-8", "replace") for part in descriptor.path)
    return f"command={descriptor.command!r}"


def _entry(info: flight.FlightInfo) -> dict[str, Any]:
    path = info.descriptor.path or []
    name = "/".join(part.decode("utf-8", "replace") for part in path)
    return {"name": name, "rows": info.total_records, "bytes": info.total_bytes}
