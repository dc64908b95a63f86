"""A stream whose bodies lie in shared memory, or come over the same Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, Any, Optional

import pyarrow as pa

from ._channel import Channel
from ._decoder import Decoder
from .errors import Code, DissociatedError, violation
from .reader import Chunk, Reader, Statistics

if TYPE_CHECKING:
    from ._flight_call import FlightCall

_STATUS_SECONDS = 1.0


class ShmReader(Reader):
    """Reads one data connection.

    A batch's memory belongs to the server until the last array, slice or buffer that views it is
    gone; that ends the lease by itself, also after :meth:`close` and on any thread. Reading is for
    one thread at a time.
    """

    def __init__(
        self,
        channel: Channel,
        call: Optional[FlightCall] = None,
        metadata: str = "inline",
        *,
        via: str = "shm",
        decoder: Any = None,
    ) -> None:
        """Takes the connection and the call over.

        :param decoder: makes batches of messages; of shared memory by default
        """
        self._via = via
        self._channel = channel
        self._call = call
        self._joiner = channel.joiner
        self._decoder = decoder or Decoder(channel, full_validation=channel.is_foreign_user)
        self._poller: Any = None
        self._ended = False
        self._closed = False
        self._pid = os.getpid()
        self._error: Optional[DissociatedError] = None
        self._pending_error: Optional[DissociatedError] = None
        self._batches = self._rows = 0
        self._metadata = metadata
        self._last_message: Any = None
        self._schema: Optional[pa.Schema] = None

    # ---- as pyarrow.RecordBatchReader

    @property
    def schema(self) -> pa.Schema:
        """The schema; waits for it when it has not come yet."""
        if self._schema is None:
            self._await(lambda: self._decoder.schema is not None)
            self._schema = self._decoder.schema
        return self._schema

    def read_next_batch(self) -> pa.RecordBatch:
        """The next batch; raises StopIteration at the end."""
        return _batch_of(self._next())

    def read_next_batch_with_custom_metadata(self) -> pa.lib.RecordBatchWithMetadata:
        """The next batch together with its custom metadata."""
        batch = self._next()
        if isinstance(batch, pa.lib.RecordBatchWithMetadata):
            return batch
        return pa.lib.RecordBatchWithMetadata(batch, None)

    def read_chunk(self) -> Chunk:
        """The next batch, or the next application metadata that came without one."""
        batch = self._next(chunks=True)
        message = self._last_message
        custom = message.custom_metadata() or None
        batch = None if batch is None else _batch_of(batch)
        return Chunk(batch, message.app_metadata(), custom)

    @property
    def app_metadata(self) -> Optional[bytes]:
        """The application metadata of the batch that was read last."""
        return self._last_message.app_metadata() if self._last_message else None

    # ---- without blocking

    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`try_read_next` may have something new."""
        if self._call is None:
            return self._channel.fileno()
        return self._epoll().fileno()

    def try_read_next(self) -> Optional[pa.RecordBatch]:
        """The next batch if it is here, otherwise None; see :attr:`ended` for why."""
        while not self.ended:
            found, batch = self._take()
            if found and batch is not None:
                return _batch_of(batch)
            if not found and not self._receive():
                self._channel.outbox.flush()
                return None
        return None

    @property
    def ended(self) -> bool:
        """Whether the stream is complete and every batch has been read."""
        return self._ended

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        descriptor = self.fileno()
        loop.add_reader(descriptor, _signal, ready)
        started = time.monotonic()
        try:
            await asyncio.wait_for(ready, self._channel.silence_limit)
        except asyncio.TimeoutError:
            self._check_silence(started)
        finally:
            loop.remove_reader(descriptor)

    # ---- reading

    def _next(self, chunks: bool = False) -> Any:
        while True:
            found, batch = self._take()
            if found:
                if batch is not None or chunks and self._last_message.has_custom_metadata:
                    return batch
            elif self._ended:
                raise StopIteration
            elif not self._receive():
                self._wait()

    def _await(self, condition: Any) -> None:
        while not condition():
            found, _ = self._take()
            if not found:
                if self._ended:
                    raise violation("stream refused: it ended before its schema")
                if not self._receive():
                    self._wait()

    def _take(self) -> tuple[bool, Any]:
        """Decodes the next message if it is complete: whether it was, and the batch in it."""
        if self._error is not None:
            raise self._error
        try:
            item = self._joiner.next()
            if item is None:
                if self._pending_error is not None:
                    raise self._pending_error
                if self._joiner.is_complete and not self._ended:
                    self._end()
                elif self._closed and not self._ended:
                    raise DissociatedError(Code.CANCELLED, "the reader is closed")
                return False, None
            message, body = item
            item = None
            batch = self._decoder.decode(message, body)
        except DissociatedError as e:
            self._fail(e)
            raise
        self._last_message = message
        if batch is not None:
            self._batches += 1
            self._rows += _batch_of(batch).num_rows
        return True, batch

    def _receive(self) -> bool:
        """Reads what has arrived; whether there was anything."""
        try:
            # Looked at first: what was sent before the call ended is then here already.
            call_ended = self._call is not None and self._call.has_ended
            progress = self._channel.receive()
            if self._call is not None:
                progress = self._call.drain(self._joiner) or progress
                if call_ended and not progress:
                    self._check_call(self._call)
            return progress
        except DissociatedError as e:
            # Told once everything that came before it has been read.
            self._pending_error = self._explain(e)
            return True

    def _check_call(self, call: FlightCall) -> None:
        """The call is over, and nothing more of the stream is here."""
        if self._joiner.is_complete:
            return
        failure = call.failure("stream failed")
        if failure is not None:
            raise failure
        if self._metadata == "flight" and self._joiner.lacks_end:
            raise DissociatedError(
                Code.UNAVAILABLE,
                f"the server ended the call before the stream, {self._joiner.missing()}",
            )

    def _explain(self, error: DissociatedError) -> DissociatedError:
        """What the call's status says, when the data connection only says that it is gone."""
        if self._call is not None and error.code is Code.UNAVAILABLE:
            self._call.wait_for_end(_STATUS_SECONDS)
            return self._call.failure("stream failed") or error
        return error

    def _wait(self) -> None:
        self._channel.outbox.flush()
        started = time.monotonic()
        limit = self._channel.silence_limit
        if self._call is None:
            arrived = self._channel.wait(limit)
        else:
            arrived = bool(self._epoll().poll(limit))
        if not arrived:
            self._check_silence(started)

    def _check_silence(self, waiting_since: float) -> None:
        heard = max(waiting_since, self._channel.last_heard)
        if self._call is not None:
            heard = max(heard, self._call.last_heard)
        silent = time.monotonic() - heard
        if silent >= self._channel.silence_limit - 0.01:
            error = DissociatedError(
                Code.TIMED_OUT,
                f"the server is silent, seconds={silent:.1f} socket={self._channel.path} "
                f"{self._joiner.missing()}",
            )
            self._fail(error)
            raise error

    def _epoll(self) -> Any:
        if self._poller is None:
            assert self._call is not None
            self._poller = select.epoll()
            self._poller.register(self._channel.fileno(), select.EPOLLIN)
            self._poller.register(self._call.fileno(), select.EPOLLIN)
        return self._poller

    # ---- the end

    @property
    def statistics(self) -> Statistics:
        """What the stream has cost so far."""
        decoder, summary = self._decoder, self._channel.summary
        types = [kind for kind, seen in enumerate((decoder.packed, decoder.by_reference)) if seen]
        return Statistics(
            via=self._via,
            metadata=self._metadata,
            batches=self._batches,
            rows=self._rows,
            bytes=decoder.bytes,
            body_types=types,
            server_copied_bytes=summary.copied_bytes if summary else None,
            client_copied_bytes=decoder.copied,
        )

    @property
    def outstanding(self) -> int:
        """Batches and dictionaries whose memory is still in use here."""
        return self._channel.outbox.outstanding

    def _end(self) -> None:
        self._ended = True
        if self._schema is None:
            self._schema = self._decoder.schema
        if self._schema is None:
            raise violation("stream refused: it ended before its schema")
        if self._channel.summary is None:
            # Sent before the end, but the end may have come faster by the other way.
            with contextlib.suppress(DissociatedError):
                self._channel.receive()
        self._decoder.close()
        self._channel.finish()
        self._close_call(cancel=False)

    def _fail(self, error: DissociatedError) -> None:
        # Not the same object, whose traceback would keep everything alive that it passed.
        self._error = DissociatedError(error.code, error.message)
        self._decoder.close()
        self._channel.finish(cancel=True)
        self._close_call(cancel=True)

    def _close_call(self, cancel: bool) -> None:
        if self._poller is not None:
            self._poller.close()
            self._poller = None
        if self._call is not None:
            self._call.close(cancel)
            self._call = None

    def close(self) -> None:
        """Stops reading. Batches that were read stay valid. Idempotent."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        if not self._ended and self._error is None:
            self._decoder.close()
            self._channel.finish(cancel=True)
            self._close_call(cancel=True)

    def __del__(self) -> None:
        if hasattr(self, "_schema"):
            with contextlib.suppress(Exception):
                self.close()


def _batch_of(decoded: Any) -> Any:
    """The batch itself, with or without custom metadata beside it."""
    return decoded.batch if isinstance(decoded, pa.lib.RecordBatchWithMetadata) else decoded


def _signal(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
