"""From an IPC message and the place of its body to a pyarrow RecordBatch, without a copy.

Arrow's own stream reader does the decoding, and with it dictionaries, their deltas and
replacements. It reads from a source that hands out the metadata and, as the body, a buffer over
the mapped segment; the metadata's buffer offsets are rewritten to offsets in that.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import reduce
from operator import add, itemgetter, or_
from typing import TYPE_CHECKING, Any, Optional

import pyarrow as pa

from .errors import Code, DissociatedError, violation
from .wire import PACKED, IpcMessage
from .wire.body import u64s, unpack_buffer_list
from .wire.frame import OFFSET_BITS
from .wire.ipc_message import DICTIONARY_BATCH, NONE, SCHEMA

if TYPE_CHECKING:
    from ._channel import Channel
    from ._outbox import Outbox

_LENGTH = struct.Struct("<I")
_ALIGNMENT = 8
_LIST_HEADER = 16
_PAIR = 16
_OFFSET_MASK = (1 << OFFSET_BITS) - 1


class Lease:
    """Stands for one batch's leases: dies with the last buffer that views it, and frees them."""

    __slots__ = ("_addresses", "_outbox", "_segment")

    def __init__(self, outbox: Outbox, segment: Any, addresses: tuple[int, ...]) -> None:
        self._outbox = outbox
        self._segment = segment  # stays mapped
        self._addresses = addresses

    def __del__(self) -> None:
        try:
            self._outbox.free(self._addresses)
        except (AttributeError, TypeError):
            pass  # at the interpreter's exit, what free() needs may be gone already


class _Plan:
    """What follows from the lengths in a buffer list alone; batches of equal shape share it."""

    __slots__ = ("lengths", "pairs", "pick", "sizes", "total", "zeroes")

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.lengths = lengths
        self.sizes = tuple(n for n in lengths if n)
        self.total = sum(lengths)
        self.zeroes = len(lengths) - len(self.sizes)
        self.pairs = [value for n in lengths for value in (0, n)]
        used = [i for i, n in enumerate(lengths) if n]
        if len(used) > 1:
            self.pick: Callable[[tuple[int, ...]], tuple[int, ...]] = itemgetter(*used)
        else:
            self.pick = lambda addresses: tuple(addresses[i] for i in used)


class _Shape:
    """A batch that was read in place, for others that differ only in where they lie.

    Their buffer list is this one with the same distance added to every address. As one large
    integer each, that is one addition and one comparison instead of a walk through the buffers.
    """

    __slots__ = ("first", "first_at", "layout", "leased", "low", "ones", "pairs", "size", "value")

    def __init__(
        self,
        message: IpcMessage,
        payload: bytes,
        pairs: bytes,
        leased: tuple[int, ...],
        low: int,
        size: int,
    ) -> None:
        self.value = int.from_bytes(payload, "little")
        self.leased = leased
        self.low = low
        self.size = size
        self.layout = message.buffer_bytes()
        self.pairs = pairs
        used = [
            at for at in range(_LIST_HEADER, len(payload), _PAIR) if any(payload[at + 8 : at + 16])
        ]
        self.ones = sum(1 << 8 * at for at in used)
        self.first_at = used[0]
        self.first = leased[0]

    def distance(self, message: IpcMessage, payload: bytes) -> Optional[int]:
        """How far from this one the batch lies; None when it is of another shape."""
        at = self.first_at
        distance = int.from_bytes(payload[at : at + 8], "little") - self.first
        if (
            distance % _ALIGNMENT
            or int.from_bytes(payload, "little") != self.value + distance * self.ones
            or not message.has_buffer_bytes(self.layout)
        ):
            return None
        return distance


class _Source:
    """A file of parts: each read takes the next one, whose size Arrow knows beforehand."""

    closed = False

    def __init__(self) -> None:
        self._parts: deque[Any] = deque()
        self.put = self._parts.append

    def read(self, _size: int = -1) -> Any:
        return self._parts.popleft() if self._parts else b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._parts.clear()


class Decoder:
    """Decodes the messages of one stream in order. Not thread-safe.

    :param channel: where leases are ended, and where the segments lie
    :param full_validation: check the contents of every batch, not only its structure
    """

    def __init__(self, channel: Channel, full_validation: bool = False) -> None:
        self._channel = channel
        self._source = _Source()
        self._reader: Any = None
        self._full = full_validation
        self._plan = _Plan(())
        self._shape: Optional[_Shape] = None
        self.schema: Optional[pa.Schema] = None
        self.bytes = 0
        self.copied = 0
        self.by_reference = False
        self.packed = False

    def decode(self, message: IpcMessage, body: Optional[tuple[int, Any]]) -> Any:
        """The record batch that the message completes, or None when it completes none.

        With custom metadata the result is pyarrow's pair of batch and metadata.
        """
        if body is None:
            self._without_body(message)
            return None
        if self.schema is None:
            raise violation("message refused: a batch came before the schema")
        # Of what is compressed, no server knows more than that it can be decompressed.
        self._full |= message.is_compressed
        kind, payload = body
        if kind == PACKED:
            self.packed = True
            flatbuffer, data = message.flatbuffer, self._packed(message, payload)
        else:
            self.by_reference = True
            flatbuffer, data = self._referenced(message, payload)
        put = self._source.put
        put(_LENGTH.pack(len(flatbuffer)))
        put(flatbuffer)
        if data is not None:
            put(data)
        payload = body = data = None  # the last reference must be Arrow's
        if message.kind == DICTIONARY_BATCH:
            return None
        return self._read(message)

    def _without_body(self, message: IpcMessage) -> None:
        if message.kind == SCHEMA:
            if self.schema is not None:
                raise violation("message refused: a second schema")
            self._source.put(_LENGTH.pack(len(message.flatbuffer)))
            self._source.put(message.flatbuffer)
            try:
                self._reader = pa.ipc.open_stream(pa.PythonFile(self._source, mode="r"))
            except (pa.ArrowException, OSError) as e:
                raise _corrupt("schema", e) from e
            self.schema = self._reader.schema
        elif message.kind != NONE or self.schema is None:
            raise violation(f"message refused: not expected here, type={message.kind}")

    def _read(self, message: IpcMessage) -> Any:
        try:
            if message.has_custom_metadata:
                result = self._reader.read_next_batch_with_custom_metadata()
                result.batch.validate(full=self._full)
            else:
                result = self._reader.read_next_batch()
                result.validate(full=self._full)
            return result
        except StopIteration:
            raise violation("batch refused: its dictionaries are missing") from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
            raise _corrupt("batch", e) from e

    def _packed(self, message: IpcMessage, payload: Any) -> Any:
        if len(payload) != message.body_length:
            raise violation(
                "body refused: its length is not the metadata's, "
                f"length={len(payload)} expected={message.body_length}"
            )
        self.bytes += len(payload)
        return payload if len(payload) else None

    def _referenced(self, message: IpcMessage, payload: bytes) -> tuple[Any, Any]:
        """The metadata re-addressed, and one buffer from the first to the last byte it names."""
        shape = self._shape
        if shape is not None:
            distance = shape.distance(message, payload)
            if distance is not None:
                self.bytes += self._plan.total
                leased = tuple([address + distance for address in shape.leased])
                low, size = shape.low + distance, shape.size
                return self._in_place(message, shape.pairs, low, low + size, leased)
        _, addresses, lengths = unpack_buffer_list(payload)
        plan = self._plan
        recurs = lengths == plan.lengths
        if not recurs:
            self._shape = None
            plan = self._plan = _Plan(lengths)
        leased = plan.pick(addresses)
        if not leased:
            if any(message.buffers()[1::2]):
                raise violation("body refused: the buffer list names no memory")
            return self._nothing(message)
        self.bytes += plan.total
        low = min(leased)
        high = max(map(add, leased, plan.sizes))
        number = low >> OFFSET_BITS
        layout = message.buffers()
        if (
            layout[1::2] != lengths
            or addresses.count(0) != plan.zeroes
            or (high - 1) >> OFFSET_BITS != number
            or reduce(or_, leased) & (_ALIGNMENT - 1)
        ):
            starts, sizes = _assign(message, addresses, lengths)
            return self._unusual(message, starts, sizes, leased)
        pairs = plan.pairs[:]
        pairs[0::2] = [address and address - low for address in addresses]
        packed = u64s(len(pairs)).pack(*pairs)
        if recurs:
            self._shape = _Shape(message, payload, packed, leased, low, high - low)
        return self._in_place(message, packed, low, high, leased)

    def _in_place(
        self,
        message: IpcMessage,
        pairs: bytes,
        low: int,
        high: int,
        leased: tuple[int, ...],
    ) -> tuple[Any, Any]:
        """One view from the lowest to the highest byte of a body that lies in one segment."""
        channel = self._channel
        segment = channel.segments.get(low >> OFFSET_BITS)
        start, size = low & _OFFSET_MASK, high - low
        if start + size > segment.size:
            raise _outside(segment, low, size)
        # A message that was refused leaves no lease: its connection ends.
        channel.outbox.granted += 1
        lease = Lease(channel.outbox, segment, leased)
        data = pa.foreign_buffer(segment.address + start, size, lease)
        if channel.is_foreign_user and not segment.is_immutable:
            # Its owner could still write: only a private copy can be validated and trusted.
            self.copied += size
            data = pa.py_buffer(data.to_pybytes())
        return message.relocated(pairs, size), data

    def _unusual(
        self, message: IpcMessage, starts: Any, sizes: Any, leased: tuple[int, ...]
    ) -> tuple[Any, Any]:
        """A body whose list does not simply name each buffer of the metadata."""
        used = [(a, n) for a, n in zip(starts, sizes) if n]
        if not used:
            self._give_back(leased)
            return self._nothing(message)
        low = min(a for a, _ in used)
        high = max(a + n for a, n in used)
        if (high - 1) >> OFFSET_BITS != low >> OFFSET_BITS or any(a % _ALIGNMENT for a, _ in used):
            gathered = self._gathered(message, starts, sizes)
            self._give_back(leased)
            return gathered
        pairs = [v for a, n in zip(starts, sizes) for v in ((a - low, n) if n else (0, 0))]
        return self._in_place(message, u64s(len(pairs)).pack(*pairs), low, high, leased)

    def _give_back(self, leased: tuple[int, ...]) -> None:
        self._channel.outbox.granted += 1
        self._channel.outbox.free(leased)

    def _nothing(self, message: IpcMessage) -> tuple[Any, Any]:
        if not message.body_length:
            return message.flatbuffer, None
        return message.relocated(bytes(_PAIR * message.buffer_count), 0), None

    def _gathered(self, message: IpcMessage, starts: Any, sizes: Any) -> tuple[Any, Any]:
        """A private copy of the body, for buffers that Arrow cannot take from where they lie."""
        pairs: list[int] = []
        parts: list[Any] = []
        position = 0
        for start, size in zip(starts, sizes):
            if not size:
                pairs += (0, 0)
                continue
            segment = self._channel.segments.get(start >> OFFSET_BITS)
            if (start & _OFFSET_MASK) + size > segment.size:
                raise _outside(segment, start, size)
            pairs += (position, size)
            view = pa.foreign_buffer(segment.address + (start & _OFFSET_MASK), size, segment)
            padding = -size % _ALIGNMENT
            parts += (view, bytes(padding)) if padding else (view,)
            position += size + padding
            self.copied += size
        data = pa.py_buffer(b"".join(parts))
        packed_pairs = u64s(len(pairs)).pack(*pairs)
        return message.relocated(packed_pairs, len(data)), data if position else None

    def close(self) -> None:
        """Lets go of the dictionaries and of everything that was not read."""
        self._source.close()
        self._reader = None


def _outside(segment: Any, start: int, size: int) -> DissociatedError:
    return violation(
        "buffer refused: outside its segment, "
        f"address={start:#x} length={size} segment_size={segment.size}"
    )


def _assign(
    message: IpcMessage, addresses: tuple[int, ...], lengths: tuple[int, ...]
) -> tuple[Any, Any]:
    """Address and length of every buffer of the metadata, by the three readings of a list."""
    layout = message.buffers()
    offsets, wanted = layout[0::2], layout[1::2]
    if len(addresses) == len(wanted):
        if lengths == wanted:
            return addresses, wanted
        given: Any = zip(addresses, lengths)
    elif len(addresses) == 1 and lengths[0] == message.body_length:
        for offset, size in zip(offsets, wanted):
            if size and offset + size > lengths[0]:
                raise violation(f"metadata refused: buffer outside its body, offset={offset}")
        return [addresses[0] + offset for offset in offsets], wanted
    elif len(addresses) == sum(1 for size in wanted if size):
        queue = iter(zip(addresses, lengths))
        given = [next(queue) if size else (0, 0) for size in wanted]
    else:
        raise violation(
            "buffer list refused: it does not fit the metadata, "
            f"count={len(addresses)} buffers={len(wanted)}"
        )
    starts = []
    for (address, length), size in zip(given, wanted):
        if length < size:
            raise violation(
                f"buffer list refused: shorter than the metadata says, length={length} "
                f"expected={size}"
            )
        starts.append(address)
    return starts, wanted


def _corrupt(what: str, cause: Exception) -> DissociatedError:
    text = str(cause).replace("\n", " ")
    return DissociatedError(Code.DATA_CORRUPT, f"{what} refused: {text}")
