"""Opening a client's streams in a GPU's memory."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Optional

import pyarrow as pa
import pyarrow.flight as flight

from . import _cuda
from ._channel import Channel
from ._device_memory import DeviceImport
from ._device_reader import DeviceReader, InPlace, Uploaded, _DeviceSource
from ._device_store import DeviceTable, upload_array
from ._flight_call import FlightCall
from .errors import Code, DissociatedError
from .wire import ExchangeCommand
from .wire.cuda import CUDA_SCHEME, CudaLocation

logger = logging.getLogger("dissociated")

_TOLD_AT_ONCE = (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED)  # every other way fails so, too


def open_device(client: Any, what: Any) -> DeviceReader:
    """A stream as batches on a device: where they lie there, otherwise copied there."""
    _cuda.require()
    skipped: list[str] = []
    if isinstance(what, str) and not client._is_socket:
        what = flight.FlightDescriptor.for_path(what)
    if isinstance(what, flight.FlightDescriptor) and not client._is_socket:
        what = client._info(what, device=True)
    if isinstance(what, flight.FlightInfo):
        endpoints = list(what.endpoints)
    elif isinstance(what, flight.FlightEndpoint):
        endpoints = [what]
    else:
        _skip(skipped, "target", "only streams found through Flight lie in device memory")
        return DeviceReader([lambda: Uploaded(client.open(what))], skipped)
    if not endpoints:
        raise DissociatedError(Code.NOT_FOUND, "nothing to read: it has no endpoints")
    openers = [partial(_open_endpoint, client, endpoint, skipped) for endpoint in endpoints]
    return DeviceReader(openers, skipped)


def get_device(client: Any, name: str, timeout: Optional[float]) -> Any:
    """What has that name, on a device: objects that lie there in place, and copies of others."""
    _cuda.require()
    found, value = client._object(name, timeout)
    if not found or isinstance(value, pa.Table):
        return open_device(client, name)
    if hasattr(value, "__cuda_array_interface__") or isinstance(value, DeviceTable):
        return value
    return upload_array(name, value)


def _open_endpoint(
    client: Any, endpoint: flight.FlightEndpoint, skipped: list[str]
) -> _DeviceSource:
    before = len(skipped)
    locations = [location.uri.decode() for location in endpoint.locations]
    for text in locations:
        if not text.startswith(CUDA_SCHEME + ":"):
            continue
        opened: list[bool] = []
        try:
            location = CudaLocation.parse(text)
            if location.memory is not None:
                return _open_location(client, endpoint, locations, location, text, opened)
        except DissociatedError as e:
            if opened or e.code in _TOLD_AT_ONCE:
                raise
            _skip(skipped, text, e.message)
    if len(skipped) == before:
        _skip(skipped, "endpoint", "offers no device memory")
    return Uploaded(client._open_endpoint(endpoint))


def _skip(skipped: list[str], what: str, why: str) -> None:
    logger.debug("falling back to a copy: %s: %s", what, why)
    skipped.append(f"{what}: {why}")


def _open_location(
    client: Any,
    endpoint: flight.FlightEndpoint,
    locations: list[str],
    location: CudaLocation,
    text: str,
    claimed: list[bool],
) -> InPlace:
    """Opens the memory, and then asks for the stream, which starts the producer."""
    channel: Optional[Channel] = None
    memory: Optional[DeviceImport] = None
    call: Optional[FlightCall] = None
    try:
        channel = Channel(location.carrier.path, location.carrier)
        assert location.memory is not None
        memory = DeviceImport.open(location.memory)
        command = ExchangeCommand(client._mode, endpoint.ticket.ticket)
        call = client._exchange(command, locations, device=True)
        offer = call.offer()
        if CudaLocation.parse(text) not in _offered(offer.locations):
            raise DissociatedError(
                Code.UNAVAILABLE, "the Flight server does not offer streams there"
            )
        claimed.append(True)
        channel.want(offer.token)
    except BaseException:
        if call is not None:
            call.close(cancel=True)
        if memory is not None:
            memory.close()
        if channel is not None:
            channel.kill()
        raise
    source = InPlace(channel, memory, call, client._metadata)
    try:
        _ = source.schema
        return source
    except BaseException:
        source.close()
        raise


def _offered(locations: tuple[str, ...]) -> list[CudaLocation]:
    return [CudaLocation.parse(text) for text in locations if text.startswith(CUDA_SCHEME + ":")]
