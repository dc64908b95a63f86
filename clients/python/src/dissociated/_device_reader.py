"""Streams read into a GPU's memory: in place where they lie there, otherwise copied to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Optional

import pyarrow as pa

from . import _cuda
from ._channel import Channel
from ._decoder import _assign
from ._device_batch import DeviceBatch, upload
from ._device_layout import require_no_dictionaries
from ._device_memory import DeviceImport, Hold, start_keeper
from ._outbox import Outbox
from ._shm_reader import ShmReader
from .errors import Code, DissociatedError, violation
from .reader import Reader, Statistics
from .server._encoder import Encoder
from .wire import PACKED, IpcMessage
from .wire.body import unpack_buffer_list
from .wire.ipc_message import DICTIONARY_BATCH, NONE, SCHEMA


class ShownMemory:
    """The memory that one connection's location names.

    Closed when the reader has ended and the last batch is given back, and before the connection is:
    the server frees the memory then. Thread-safe.
    """

    def __init__(self, outbox: Outbox, memory: Optional[DeviceImport]) -> None:
        """Takes over one use of ``memory``."""
        self._outbox = outbox
        self._memory = memory
        self._lock = threading.RLock()
        self._users = 1
        outbox.granted += 1  # what keeps the connection, like a lease

    @property
    def memory(self) -> DeviceImport:
        """The memory; PROTOCOL_VIOLATION where the location names none."""
        if self._memory is None:
            raise violation("body refused: by reference, but the location names no device memory")
        return self._memory

    def lend(self, addresses: tuple[int, ...]) -> Callable[[], None]:
        """A batch begins to be read; what it gives is to be called when it no longer is."""
        with self._lock:
            self._users += 1
        self._outbox.granted += 1
        return partial(self._returned, addresses)

    def _returned(self, addresses: tuple[int, ...]) -> None:
        self._outbox.free(addresses)
        self.done()

    def done(self) -> None:
        """One user less."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        try:
            if self._memory is not None:
                self._memory.close()
        finally:
            self._outbox.free(())

    @property
    def lent(self) -> int:
        """Batches that are still in use."""
        return self._users - (0 if self._is_ended else 1)

    _is_ended = False

    def end(self) -> None:
        """The reader needs it no longer. Idempotent."""
        with self._lock:
            ended, self._is_ended = self._is_ended, True
        if not ended:
            self.done()


class DeviceDecoder:
    """What :class:`Decoder` is for host memory: batches in a GPU's memory."""

    def __init__(self, channel: Channel, memory: Optional[DeviceImport]) -> None:
        self.shown = ShownMemory(channel.outbox, memory)
        self.schema: Optional[pa.Schema] = None
        self.bytes = 0
        self.copied = 0
        self.by_reference = False
        self.packed = False

    def decode(self, message: IpcMessage, body: Optional[tuple[int, Any]]) -> Any:
        """The batch that the message completes, or None when it completes none."""
        if body is None:
            self._without_body(message)
            return None
        if self.schema is None:
            raise violation("message refused: a batch came before the schema")
        if message.kind == DICTIONARY_BATCH:
            raise DissociatedError(Code.UNSUPPORTED, "dictionaries are not read where they lie")
        if message.is_compressed:
            raise DissociatedError(
                Code.UNSUPPORTED, "compressed bodies are not read where they lie"
            )
        kind, payload = body
        batch = (
            self._uploaded(message, payload) if kind == PACKED else self._there(message, payload)
        )
        self.bytes += batch.nbytes
        return batch

    def _without_body(self, message: IpcMessage) -> None:
        if message.kind == SCHEMA and self.schema is None:
            try:
                schema = pa.ipc.read_schema(pa.py_buffer(_encapsulated(message.flatbuffer)))
                _ = schema.names  # text, as all of pyarrow takes for granted
            except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
                text = str(e).replace("\n", " ")
                raise DissociatedError(Code.DATA_CORRUPT, f"schema refused: {text}") from e
            require_no_dictionaries(schema)
            self.schema = schema
        elif message.kind != NONE or self.schema is None:
            raise violation(f"message refused: not expected here, type={message.kind}")

    def _uploaded(self, message: IpcMessage, payload: Any) -> DeviceBatch:
        self.packed = True
        if len(payload) != message.body_length:
            raise violation(
                "body refused: its length is not the metadata's, "
                f"length={len(payload)} expected={message.body_length}"
            )
        self.copied += len(payload)
        assert self.schema is not None
        return upload(self.schema, message, [pa.py_buffer(payload)])

    def _there(self, message: IpcMessage, payload: bytes) -> DeviceBatch:
        self.by_reference = True
        _, addresses, lengths = unpack_buffer_list(payload)
        starts, sizes = _assign(message, addresses, lengths)
        leased = tuple(a for a, n in zip(addresses, lengths) if n)
        # A batch without bytes lies nowhere, so that a stream of such needs no memory.
        used = any(sizes)
        device = self.shown.memory.device if used else _cuda.device(0)
        buffers = [
            (self.shown.memory.resolve(start, size), size) if size else (0, 0)
            for start, size in zip(starts, sizes)
        ]
        assert self.schema is not None
        return DeviceBatch(
            self.schema, message, buffers, lambda: Hold(device, self.shown.lend(leased))
        )

    def close(self) -> None:
        """Nothing more is decoded."""
        self.shown.end()


def _encapsulated(flatbuffer: bytes) -> bytes:
    padding = -len(flatbuffer) % 8
    length = (len(flatbuffer) + padding).to_bytes(4, "little")
    return b"\xff\xff\xff\xff" + length + flatbuffer + bytes(padding)


class DeviceReader:
    """Record batches of one stream in a GPU's memory, one :class:`DeviceBatch` after the other.

    Batches stay valid when it is closed. Reading is for one thread at a time.
    """

    def __init__(self, openers: Sequence[Callable[[], _DeviceSource]], skipped: list[str]) -> None:
        """Opens the first stream; the others are opened when they are reached.

        :param skipped: where the openers write why batches do not lie where the producer has them
        """
        start_keeper()
        self._openers = iter(openers)
        self._skipped = skipped
        self._current: _DeviceSource = next(self._openers)()
        self._copied = 0
        self._closed = False
        self.schema: pa.Schema = self._current.schema

    def read_next_batch(self) -> DeviceBatch:
        """The next batch; raises StopIteration at the end."""
        if self._closed:
            raise DissociatedError(Code.CANCELLED, "the reader is closed")
        while True:
            batch = self._current.next()
            if batch is not None:
                return batch
            opener = next(self._openers, None)
            if opener is None:
                raise StopIteration
            copied = self._current.copied
            self._current.close()
            self._copied += copied
            self._current = opener()
            if not self._current.schema.equals(self.schema):
                raise DissociatedError(
                    Code.DATA_CORRUPT,
                    "endpoint refused: its schema differs from the first endpoint's",
                )

    def __iter__(self) -> Iterator[DeviceBatch]:
        return self

    def __next__(self) -> DeviceBatch:
        return self.read_next_batch()

    @property
    def fallback_reason(self) -> Optional[str]:
        """Why batches do not lie where the producer has them; None when they do. For people."""
        return "; ".join(self._skipped) or None

    @property
    def copied_bytes(self) -> int:
        """Bytes that were copied to the device here; 0 when all was read in place."""
        return self._copied + self._current.copied

    @property
    def outstanding(self) -> int:
        """Batches of the stream's memory that are still in use here."""
        return self._current.outstanding

    @property
    def statistics(self) -> Statistics:
        """What the stream that is being read has cost so far."""
        return self._current.statistics

    def close(self) -> None:
        """Stops reading. Batches that were read stay valid. Idempotent."""
        if not self._closed:
            self._closed = True
            self._current.close()

    def __enter__(self) -> DeviceReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _DeviceSource:
    """One stream; its batches in a GPU's memory."""

    schema: pa.Schema
    copied: int
    outstanding: int = 0
    statistics: Statistics

    def next(self) -> Optional[DeviceBatch]:
        """The next batch; None at the end."""
        raise NotImplementedError

    def close(self) -> None:
        """Stops reading."""
        raise NotImplementedError


class InPlace(_DeviceSource):
    """A stream that lies in a GPU's memory; what comes packed all the same is copied to it."""

    def __init__(
        self, channel: Channel, memory: Optional[DeviceImport], call: Any, metadata: str
    ) -> None:
        """Takes all of them over."""
        self._decoder = DeviceDecoder(channel, memory)
        self._reader = ShmReader(channel, call, metadata, via="cuda", decoder=self._decoder)

    @property
    def schema(self) -> pa.Schema:  # type: ignore[override]
        return self._reader.schema

    def next(self) -> Optional[DeviceBatch]:
        try:
            batch: Any = self._reader.read_next_batch()
            return batch
        except StopIteration:
            return None

    @property
    def copied(self) -> int:  # type: ignore[override]
        return self._decoder.copied

    @property
    def outstanding(self) -> int:  # type: ignore[override]
        return self._decoder.shown.lent

    @property
    def statistics(self) -> Statistics:  # type: ignore[override]
        return self._reader.statistics

    def close(self) -> None:
        self._reader.close()


class Uploaded(_DeviceSource):
    """A stream that comes into host memory, copied to a device batch by batch."""

    def __init__(self, host: Reader) -> None:
        """Takes the reader over."""
        self._host = host
        self.copied = 0
        try:
            self.schema = host.schema
            require_no_dictionaries(self.schema)
            # Compressed bodies would be of no use there.
            options = pa.ipc.IpcWriteOptions(compression=None)
            self._encoder = Encoder(self.schema, options)
        except BaseException:
            host.close()
            raise

    def next(self) -> Optional[DeviceBatch]:
        try:
            host = self._host.read_next_batch()
        except StopIteration:
            return None
        (encoded,) = self._encoder.batch(host)
        batch = upload(self.schema, encoded.message, encoded.parts)
        self.copied += batch.nbytes
        return batch

    @property
    def statistics(self) -> Statistics:  # type: ignore[override]
        return self._host.statistics

    def close(self) -> None:
        self._encoder.close()
        self._host.close()
