"""Record batches of one stream, whichever way they come."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Optional

import pyarrow as pa


@dataclass
class Statistics:
    """What a stream has cost so far."""

    via: str = ""
    metadata: str = ""
    batches: int = 0
    rows: int = 0
    bytes: int = 0
    """Bytes of all bodies, wherever they lay."""
    body_types: list[int] = field(default_factory=list)
    """0 for packed bodies, 1 for bodies read in place."""
    server_copied_bytes: Optional[int] = None
    """What the server copied, as it says at the end of the stream; None when it does not."""
    client_copied_bytes: Optional[int] = 0
    """What this end copied beyond receiving it; None for plain Flight, which does not count."""

    def as_dict(self) -> dict[str, Any]:
        """The same as a dictionary."""
        return asdict(self)


class Chunk(NamedTuple):
    """A record batch, or application metadata without one, as Flight sends them."""

    data: Optional[pa.RecordBatch]
    app_metadata: Optional[bytes]
    custom_metadata: Optional[dict[str, str]]


class Reader(abc.ABC):
    """Record batches of one stream, with the methods of :class:`pyarrow.RecordBatchReader`.

    The memory of a batch may belong to the server. It is given back by itself when the last
    array, slice or buffer that views it is gone, on any thread, also after :meth:`close`. Reading
    is for one thread at a time.
    """

    @property
    @abc.abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of every batch."""

    @abc.abstractmethod
    def read_next_batch(self) -> pa.RecordBatch:
        """The next batch; raises StopIteration at the end."""

    @abc.abstractmethod
    def read_chunk(self) -> Chunk:
        """The next batch, or the next application metadata that came without one."""

    @abc.abstractmethod
    def try_read_next(self) -> Optional[pa.RecordBatch]:
        """The next batch if it is here, otherwise None; see :attr:`ended` for why."""

    @abc.abstractmethod
    def fileno(self) -> int:
        """A descriptor that is readable when :meth:`try_read_next` may have something new."""

    @property
    @abc.abstractmethod
    def ended(self) -> bool:
        """Whether the stream is complete and every batch has been read."""

    @property
    @abc.abstractmethod
    def statistics(self) -> Statistics:
        """What the stream has cost so far."""

    @property
    def outstanding(self) -> int:
        """Batches and dictionaries of the server's memory that are still in use here."""
        return 0

    @abc.abstractmethod
    def close(self) -> None:
        """Stops reading. Batches that were read stay valid. Idempotent."""

    @abc.abstractmethod
    async def _readable(self) -> None:
        """Waits until :meth:`try_read_next` may have something new."""

    def read_all(self) -> pa.Table:
        """All remaining batches as a table. Holds their leases as long as the table lives."""
        schema = self.schema
        return pa.Table.from_batches(list(self), schema)

    def read_pandas(self, **options: Any) -> Any:
        """All remaining batches as a pandas DataFrame."""
        return self.read_all().to_pandas(**options)

    def to_reader(self) -> pa.RecordBatchReader:
        """This stream as pyarrow's own reader, for everything that insists on one."""
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The Arrow C stream of the remaining batches."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self.read_next_batch()

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        while True:
            batch = self.try_read_next()
            if batch is not None:
                return batch
            if self.ended:
                raise StopAsyncIteration
            await self._readable()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
