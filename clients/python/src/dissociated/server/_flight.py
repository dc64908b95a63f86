"""The Flight server beside the Unix socket: finding streams, plain DoGet, and metadata."""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as flight

from .._flight_errors import to_flight
from ..client import ACCEPT_HEADER, REUSE_SCHEME, SCHEME, STAT_ACTION
from ..errors import Code, DissociatedError
from ..wire import ExchangeCommand, ExchangeOffer
from ..wire.exchange import HEARTBEAT
from ._offers import OFFER_SECONDS, Offer
from ._sources import open_source

if TYPE_CHECKING:
    from ._server import Server

_MIDDLEWARE = "dissociated.headers"
_REUSE = f"{REUSE_SCHEME}://?"
_SILENCE_SECONDS = 1.0
_CHECK_SECONDS = 0.25


class _Headers(flight.ServerMiddleware):
    """Remembers a call's headers."""

    def __init__(self, headers: dict[str, list[Any]]) -> None:
        super().__init__()
        values = headers.get(ACCEPT_HEADER, [])
        text = ",".join(v.decode() if isinstance(v, bytes) else v for v in values)
        self.accepts = SCHEME in {part.strip() for part in text.split(",")}


class _HeadersFactory(flight.ServerMiddlewareFactory):
    def start_call(self, info: Any, headers: dict[str, list[Any]]) -> _Headers:
        return _Headers(headers)


class FlightService(flight.FlightServerBase):
    """Flight calls of one server."""

    def __init__(self, server: Server, uri: str, options: dict[str, Any]) -> None:
        middleware = {**options.pop("middleware", {}), _MIDDLEWARE: _HeadersFactory()}
        super().__init__(uri, middleware=middleware, **options)
        self._server = server
        self._closing = False

    # ---- finding streams

    def get_flight_info(self, context: Any, descriptor: Any) -> flight.FlightInfo:
        try:
            return self._info(context, _name(descriptor), descriptor)
        except DissociatedError as e:
            raise to_flight(e) from e

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[flight.FlightInfo]:
        for name in self._server.catalogue.names():
            # What is made for each reader is not made only to be listed.
            known = self._server.catalogue.is_resident(name)
            with contextlib.suppress(DissociatedError):
                yield self._info(
                    context, name, flight.FlightDescriptor.for_path(name), described=known
                )

    def get_schema(self, context: Any, descriptor: Any) -> flight.SchemaResult:
        try:
            return flight.SchemaResult(self._server.describe(_name(descriptor))[0])
        except DissociatedError as e:
            raise to_flight(e) from e

    def _info(
        self, context: Any, name: str, descriptor: Any, described: bool = True
    ) -> flight.FlightInfo:
        schema, rows, size = (pa.schema([]), -1, -1)
        if described:
            schema, rows, size = self._server.describe(name)
        locations: list[str] = []
        if self._server.advertises or self._accepts(context):
            locations = [self._server.location, _REUSE]
        endpoint = flight.FlightEndpoint(name.encode("utf-8"), locations)
        return flight.FlightInfo(schema, descriptor, [endpoint], rows, size)

    @staticmethod
    def _accepts(context: Any) -> bool:
        headers = context.get_middleware(_MIDDLEWARE)
        return headers is not None and headers.accepts

    # ---- streams

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            name = _text(ticket.ticket)
            source = open_source(name, self._server.catalogue.source(name))
        except DissociatedError as e:
            raise to_flight(e) from e

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for batch, _ in source:
                    yield batch
            except DissociatedError as e:
                raise to_flight(e) from e
            finally:
                source.close()

        # Not a GeneratorStream, which sends no dictionaries.
        reader = pa.RecordBatchReader.from_batches(source.schema, batches())
        return flight.RecordBatchStream(reader)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        command = None
        try:
            if self._accepts(context) and descriptor.command:
                command = ExchangeCommand.parse(descriptor.command)
            if command is None:
                raise DissociatedError(Code.UNSUPPORTED, "this server knows no other DoExchange")
            name = _text(command.ticket)
            self._server.catalogue.source(name)  # NOT_FOUND before a token is given
            identity = context.peer_identity().decode("utf-8", "replace")
            self._serve(context, Offer(name, identity, command.mode), writer)
        except DissociatedError as e:
            raise to_flight(e) from e

    def _serve(self, context: Any, offer: Offer, writer: Any) -> None:
        """Carries a stream's metadata, and its fate, from its producer to the call."""
        locations = (self._server.location,)
        self._server.offers.add(offer)
        try:
            writer.write_metadata(ExchangeOffer(offer.token, locations).encode())
            written = time.monotonic()
            while True:
                try:
                    metadata = offer.receive(_CHECK_SECONDS)
                except queue.Empty:
                    self._check(context, offer)
                    if time.monotonic() - written < _SILENCE_SECONDS:
                        continue
                    metadata = HEARTBEAT
                if metadata is None:
                    break
                writer.write_metadata(metadata)
                written = time.monotonic()
            if offer.error is not None:
                raise to_flight(offer.error)
        finally:
            self._server.offers.remove(offer)
            offer.cancelled.set()
            if offer.connection is not None and not offer.finished:
                offer.connection.shutdown(DissociatedError(Code.CANCELLED, "the call has ended"))

    def _check(self, context: Any, offer: Offer) -> None:
        if context.is_cancelled() or self._closing:
            raise DissociatedError(Code.CANCELLED, "the call was cancelled")
        if offer.connection is None and offer.expires < time.monotonic():
            raise DissociatedError(
                Code.TIMED_OUT, f"the stream was not claimed, seconds={OFFER_SECONDS:.0f}"
            )

    # ---- actions

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        if self._accepts(context):
            return [(STAT_ACTION, "Who holds which leases")]
        return []

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        if action.type != STAT_ACTION or not self._accepts(context):
            raise pa.ArrowNotImplementedError(f"unknown action, type={action.type}")
        return [json.dumps(self._server.stat()).encode("utf-8")]

    def begin_close(self) -> None:
        """Lets the calls that are under way end."""
        self._closing = True

    def close(self) -> None:
        """Ends all calls."""
        self._closing = True
        self.shutdown()


def _text(ticket: bytes) -> str:
    try:
        return ticket.decode("utf-8")
    except UnicodeDecodeError as e:
        raise DissociatedError(Code.NOT_FOUND, f"no such stream, ticket={ticket!r}") from e


def _name(descriptor: Any) -> str:
    if descriptor.path:
        return "/".join(_text(part) for part in descriptor.path)
    return _text(descriptor.command or b"")
