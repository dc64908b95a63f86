"""Streams that do not come by shared memory, and streams of several endpoints."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

import pyarrow as pa

from ._flight_errors import FLIGHT_ERRORS, from_flight
from .errors import Code, DissociatedError
from .reader import Chunk, Reader, Statistics


class DoGetReader(Reader):
    """An ordinary Flight DoGet call."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._statistics = Statistics(via="flight", metadata="flight", client_copied_bytes=None)
        self._ended = False
        self._closed = False
        try:
            self._schema = stream.schema
        except FLIGHT_ERRORS as e:
            raise from_flight("stream refused", e) from e

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def read_chunk(self) -> Chunk:
        if self._closed:
            raise DissociatedError(Code.CANCELLED, "the reader is closed")
        if self._ended:
            raise StopIteration
        try:
            chunk = self._stream.read_chunk()
        except StopIteration:
            self._ended = True
            self._stream = None
            raise
        except FLIGHT_ERRORS as e:
            raise from_flight("stream failed", e) from e
        statistics = self._statistics
        if chunk.data is not None:
            statistics.batches += 1
            statistics.rows += chunk.data.num_rows
            statistics.bytes += chunk.data.nbytes
        metadata = None if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
        return Chunk(chunk.data, metadata, None)

    def read_next_batch(self) -> pa.RecordBatch:
        while True:
            data = self.read_chunk().data
            if data is not None:
                return data

    def try_read_next(self) -> Optional[pa.RecordBatch]:
        raise _no_descriptor()

    def fileno(self) -> int:
        raise _no_descriptor()

    async def _readable(self) -> None:
        raise _no_descriptor()

    async def __anext__(self) -> pa.RecordBatch:
        # A StopIteration cannot pass through a future.
        batch = await asyncio.get_running_loop().run_in_executor(None, lambda: next(self, None))
        if batch is None:
            raise StopAsyncIteration
        return batch

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def statistics(self) -> Statistics:
        return self._statistics

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._stream is not None:
                with contextlib.suppress(Exception):
                    self._stream.cancel()
                # Drained so that the call's resources go now and not at some later collection.
                with contextlib.suppress(Exception, StopIteration):
                    while True:
                        self._stream.read_chunk()
                self._stream = None


def _no_descriptor() -> DissociatedError:
    return DissociatedError(
        Code.UNSUPPORTED, "a stream over plain Flight has no descriptor to poll; use 'async for'"
    )


def _sum(counts: Iterable[Optional[int]]) -> Optional[int]:
    """The sum, unless one is not known."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


class ChainReader(Reader):
    """The streams of several endpoints, one after the other, each opened when it is needed."""

    def __init__(self, openers: Iterator[Callable[[], Reader]]) -> None:
        self._openers = openers
        self._current = next(openers)()
        self._schema = self._current.schema
        self._done: list[Statistics] = []
        self._ended = False

    def _advance(self) -> bool:
        """Goes on to the next endpoint; False when there is none."""
        self._done.append(self._current.statistics)
        opener = next(self._openers, None)
        if opener is None:
            self._done.pop()
            self._ended = True
            return False
        self._current.close()
        self._current = opener()
        if not self._current.schema.equals(self._schema):
            raise DissociatedError(
                Code.DATA_CORRUPT,
                "endpoint refused: its schema differs from the first endpoint's",
            )
        return True

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def read_next_batch(self) -> pa.RecordBatch:
        while True:
            try:
                return self._current.read_next_batch()
            except StopIteration:
                if not self._advance():
                    raise

    def read_chunk(self) -> Chunk:
        while True:
            try:
                return self._current.read_chunk()
            except StopIteration:
                if not self._advance():
                    raise

    def try_read_next(self) -> Optional[pa.RecordBatch]:
        while not self._ended:
            batch = self._current.try_read_next()
            if batch is not None or not self._current.ended:
                return batch
            self._advance()
        return None

    def fileno(self) -> int:
        return self._current.fileno()

    async def _readable(self) -> None:
        await self._current._readable()

    async def __anext__(self) -> pa.RecordBatch:
        while True:
            try:
                return await self._current.__anext__()
            except StopAsyncIteration:
                if not self._advance():
                    raise

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def outstanding(self) -> int:
        return self._current.outstanding

    @property
    def statistics(self) -> Statistics:
        parts = [*self._done, self._current.statistics]
        total = Statistics(via=parts[0].via, metadata=parts[0].metadata)
        for part in parts:
            total.batches += part.batches
            total.rows += part.rows
            total.bytes += part.bytes
        total.server_copied_bytes = _sum(part.server_copied_bytes for part in parts)
        total.client_copied_bytes = _sum(part.client_copied_bytes for part in parts)
        total.body_types = sorted({kind for part in parts for kind in part.body_types})
        return total

    def close(self) -> None:
        self._current.close()
