"""Named, immutable objects that every process of a host shares, put and got without copies.

>>> with dissociated.store.connect("/tmp/store.sock") as store:    # doctest: +SKIP
...     store.put("array", numpy.arange(10))
...     print(store.get("array").sum())

Bytes come back as a read-only ``memoryview``, tables as ``pyarrow.Table``, arrays as read-only
numpy arrays, and everything else as pickle makes it, its large parts over shared memory. What was
got is on lease until the last view of it goes.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import pyarrow as pa

from ._copied import Copied
from ._own_memory import OwnSegment, create_file, write_all
from ._store_channel import StoreChannel
from ._store_table import (
    read_batches,
    read_table,
    read_tensor,
    split_stream,
    tensor_batch,
    tensor_metadata,
)
from .errors import Code, DissociatedError, violation
from .wire.frame import OFFSET_BITS
from .wire.store import (
    FOR_EVER,
    INLINE,
    MAX_BUFFERS,
    MAX_MESSAGE,
    PIN,
    REPLACE,
    SET_TTL,
    SHARED,
    UNPIN,
    ObjectInfo,
    ObjectType,
    Op,
    buffer_entry,
    check_name,
)

__all__ = ["ObjectInfo", "ObjectType", "Store", "connect"]

_INLINE_LIMIT = 64 << 10  # up to here a copy through the socket costs less than a segment
_PAGE_OF_NAMES = 1000
_ALIGNMENT = 64


def connect(path: str) -> Store:
    """Connects to the daemon that listens at a Unix socket."""
    return Store(path)


class Store:
    """A connection to a store. Thread-safe; a forked child connects anew.

    What was got stays readable as long as it is referenced, also when this is closed or the daemon
    has gone.
    """

    def __init__(self, path: str) -> None:
        self._channel = StoreChannel(path)

    # ---- put

    def put(
        self,
        name: str,
        obj: Any,
        *,
        replace: bool = False,
        pin: bool = False,
        ttl: Optional[float] = None,
    ) -> None:
        """Puts an object, which is copied once.

        :param obj: bytes-like; a pyarrow table, batch or reader; a numpy array of numbers;
            anything else that pickle takes, data frames too
        :param replace: take the name over if it is taken
        :param pin: never evict it
        :param ttl: how many seconds it lives; until it is deleted by default
        """
        options = _options(replace, pin, ttl)
        if isinstance(obj, (bytes, bytearray, memoryview, pa.Buffer)):
            self._put_parts(name, ObjectType.BYTES, [obj], options)
            return
        if isinstance(obj, (pa.Table, pa.RecordBatch)) and obj.nbytes > _INLINE_LIMIT:
            copied = Copied.of_stream(_as_reader(obj))
            if self._put_copied(name, ObjectType.TABLE, copied, options):
                return
        reader = _as_reader(obj)
        if reader is not None:
            self._put_stream(name, ObjectType.TABLE, reader, options)
            return
        values = _as_values(obj)
        if values is not None:
            flat = values.buffers()[1]
            if flat is not None and flat.size > _INLINE_LIMIT:
                metadata = tensor_metadata(values.type, obj.shape, len(values))
                copied = Copied.of_body(metadata, [flat, bytes(-flat.size % 8)])
                if self._put_copied(name, ObjectType.TENSOR, copied, options):
                    return
            batch = tensor_batch(values, obj.shape)
            reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
            self._put_stream(name, ObjectType.TENSOR, reader, options)
            return
        parts: Any = [b""]
        try:
            keep = parts.append
            parts[0] = pickle.dumps(obj, protocol=5, buffer_callback=lambda b: keep(b.raw()))
        except BufferError:  # an out-of-band buffer that does not lie in one piece
            parts = [pickle.dumps(obj, protocol=5)]
        self._put_parts(name, ObjectType.PICKLE, parts, options)

    def put_many(
        self,
        objects: Mapping[str, Any],
        *,
        replace: bool = False,
        pin: bool = False,
        ttl: Optional[float] = None,
    ) -> None:
        """Puts many small objects of bytes without waiting for each; larger ones one by one.

        Where one fails, the others are put all the same, and the first failure is raised.
        """
        options = _options(replace, pin, ttl)
        small, large = [], {}
        for name, data in objects.items():
            view = memoryview(data).cast("B")
            if len(view) > _INLINE_LIMIT:
                large[name] = view
                continue
            entry = buffer_entry(INLINE, 0, len(view)) if len(view) else b""
            small.append(
                {
                    "name": check_name(name),
                    "kind": ObjectType.BYTES,
                    "b": 1 if entry else 0,
                    "payload": entry + bytes(view),
                    **options,
                }
            )
        self._channel.call_all(Op.PUT, small)
        for name, view in large.items():
            self.put(name, view, replace=replace, pin=pin, ttl=ttl)

    def _put_parts(
        self, name: str, kind: ObjectType, parts: Sequence[Any], options: dict[str, int]
    ) -> None:
        views = [memoryview(part).cast("B") for part in parts]
        views = [view for view in views if len(view)] if kind is ObjectType.BYTES else views
        if sum(map(len, views)) <= _INLINE_LIMIT:
            entries, data = [], b""
            for view in views:
                entries.append(buffer_entry(INLINE, len(data), len(view)))
                data += bytes(view)
            self._send_put(name, kind, entries, data, options)
            return
        if self._put_copied(name, kind, Copied.of_parts(views), options):
            return
        descriptor = create_file()
        with contextlib.closing(OwnSegment(descriptor)) as segment:
            number = self._channel.next_segments(1)[0]
            entries, at = [], 0
            for view in views:
                write_all(descriptor, view)
                entries.append(_shared(number, at, len(view)))
                at += len(view)
                write_all(descriptor, bytes(-at % _ALIGNMENT))
                at += -at % _ALIGNMENT
            segment.freeze()
            self._send_put(name, kind, entries, b"", options, [(number, segment)])

    def _put_copied(
        self, name: str, kind: ObjectType, copied: Copied, options: dict[str, int]
    ) -> bool:
        """Has the daemon copy from this process's memory; false where it may not."""
        if copied.length <= _INLINE_LIMIT or not copied.fits:
            return False
        entries, data = copied.payload()
        try:
            self._send_put(name, kind, entries, data, options)
        except DissociatedError as e:
            if e.code is not Code.UNSUPPORTED:
                raise
            return False
        return True

    def _put_stream(
        self, name: str, kind: ObjectType, reader: Any, options: dict[str, int]
    ) -> None:
        """Arrow writes the stream into the segment; the metadata goes along with the message."""
        descriptor = create_file()
        with contextlib.closing(OwnSegment(descriptor)) as segment:
            with pa.OSFile(f"/proc/self/fd/{descriptor}", mode="w") as sink:
                with pa.ipc.new_stream(sink, reader.schema) as writer:
                    for batch in reader:
                        writer.write_batch(batch)
            metadata, bodies = split_stream(
                lambda at, length: os.pread(descriptor, length, at)
            )
            number = self._channel.next_segments(1)[0]
            small = os.fstat(descriptor).st_size <= _INLINE_LIMIT
            data = metadata
            entries = [buffer_entry(INLINE, 0, len(metadata))]
            if len(metadata) > MAX_MESSAGE // 2:
                at = os.fstat(descriptor).st_size + 7 & ~7
                os.pwrite(descriptor, metadata, at)
                entries, data = [_shared(number, at, len(metadata))], b""
            for at, length in bodies:
                if small:
                    entries.append(buffer_entry(INLINE, len(data), length))
                    data += os.pread(descriptor, length, at)
                else:
                    entries.append(_shared(number, at, length))
            if len(entries) > MAX_BUFFERS:
                raise DissociatedError(
                    Code.INVALID_ARGUMENT,
                    f"table not put: too many batches, combine chunks first, name={name}",
                )
            if small:
                self._send_put(name, kind, entries, data, options)
                return
            segment.freeze()
            self._send_put(name, kind, entries, data, options, [(number, segment)])

    def _send_put(
        self,
        name: str,
        kind: ObjectType,
        entries: Sequence[bytes],
        data: bytes,
        options: dict[str, int],
        segments: Optional[list[Any]] = None,
    ) -> None:
        self._channel.call(
            Op.PUT,
            segments,
            name=check_name(name),
            kind=kind,
            b=len(entries),
            payload=b"".join(entries) + data,
            **options,
        )

    @contextlib.contextmanager
    def create(
        self,
        name: str,
        shape: Any,
        dtype: Any = "float64",
        *,
        replace: bool = False,
        pin: bool = False,
        ttl: Optional[float] = None,
    ) -> Iterator[Any]:
        """A writable numpy array that lies where the store will keep it.

        It is put, without a copy, when the ``with`` block ends, and not when that raises; from
        then on it is read-only, for this process too.
        """
        import numpy as np

        check_name(name)
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = _arrow_type(dtype)
        if kind is None:
            raise DissociatedError(Code.UNSUPPORTED, f"no tensors of that type, dtype={dtype}")
        count = int(np.prod(shape, dtype=np.int64))
        length = count * dtype.itemsize
        body = max(8, -(-length // 8) * 8)
        with contextlib.closing(OwnSegment(create_file(), body)) as segment:
            array = np.frombuffer(segment.view(body), dtype, count).reshape(shape)
            yield array
            array.flags.writeable = False
            segment.freeze()
            metadata = tensor_metadata(kind, shape, count)
            number = self._channel.next_segments(1)[0]
            entries = [buffer_entry(INLINE, 0, len(metadata))]
            if length:
                entries.append(_shared(number, 0, body))
            self._send_put(
                name,
                ObjectType.TENSOR,
                entries,
                metadata,
                _options(replace, pin, ttl),
                [(number, segment)] if length else [],
            )

    # ---- get

    def get(self, name: str, *, timeout: Optional[float] = 0) -> Any:
        """The object of that name, over the shared memory.

        What Python's pickle made is unpickled, which runs what it says: see ``stat(name).type``
        first where not everybody who may put is trusted.

        :param timeout: how many seconds to wait for the name; None for ever
        """
        kind, buffers = self._get(name, timeout)
        if kind is ObjectType.BYTES:
            return memoryview(buffers[0] if buffers else b"").cast("B")
        if kind is ObjectType.TABLE:
            return read_batches(read_table(buffers))
        if kind is ObjectType.TENSOR:
            values, shape = read_tensor(read_table(buffers))
            array = values.to_numpy(zero_copy_only=True).reshape(shape)
            array.flags.writeable = False
            return array
        if not buffers:
            raise DissociatedError(Code.DATA_CORRUPT, f"object has no pickle, name={name}")
        return pickle.loads(buffers[0], buffers=buffers[1:])

    def get_buffers(self, name: str, *, timeout: Optional[float] = 0) -> list[pa.Buffer]:
        """The buffers of an object as they are."""
        return self._get(name, timeout)[1]

    def _get(self, name: str, timeout: Optional[float]) -> tuple[ObjectType, list[pa.Buffer]]:
        wait = FOR_EVER if timeout is None else max(0, round(timeout * 1000))
        answer = self._channel.call(Op.GET, name=check_name(name), a=wait)
        if answer.op is not Op.OBJECT:
            raise violation(f"store message refused: another answer was due, op={answer.op}")
        lease, places = self._channel.lease(answer)
        buffers = [
            pa.foreign_buffer(address, length, base=lease) if length else pa.py_buffer(b"")
            for address, length in places
        ]
        return ObjectType(answer.type), buffers

    # ---- the rest

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        """The objects whose names begin with ``prefix``, in the order of their names."""
        rows: list[ObjectInfo] = []
        more = True
        while more:
            after = rows[-1].name.encode() if rows else b""
            answer = self._channel.call(
                Op.LIST, name=after, a=_PAGE_OF_NAMES, payload=prefix.encode()
            )
            page = answer.rows()
            rows += page
            more = bool(answer.a and page)
        return rows

    def stat(self, name: str) -> Optional[ObjectInfo]:
        """What the store knows of an object; None when there is none of that name."""
        try:
            return self._channel.call(Op.STAT, name=check_name(name)).rows()[0]
        except DissociatedError as e:
            if e.code is Code.NOT_FOUND:
                return None
            raise

    def __contains__(self, name: str) -> bool:
        return self.stat(name) is not None

    def delete(self, name: str) -> None:
        """Takes the name away; the memory goes with the last lease."""
        self._channel.call(Op.DELETE, name=check_name(name))

    def pin(self, name: str, pinned: bool = True) -> None:
        """Keeps the object from being evicted, or no longer."""
        self._channel.call(Op.CHANGE, name=check_name(name), flags=PIN if pinned else UNPIN)

    def expire(self, name: str, ttl: Optional[float]) -> None:
        """Lets the object live so many seconds from now; None until it is deleted."""
        self._channel.call(
            Op.CHANGE, name=check_name(name), flags=SET_TTL, a=_options(False, False, ttl)["a"]
        )

    def usage(self) -> dict[str, Any]:
        """What the store has, and who holds it."""
        return self._channel.call(Op.USAGE).usage()

    def close(self) -> None:
        """Ends the connection; what is in use keeps it until it goes. Idempotent."""
        self._channel.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shared(segment: int, offset: int, length: int) -> bytes:
    return buffer_entry(SHARED, segment << OFFSET_BITS | offset, length)


def _options(replace: bool, pin: bool, ttl: Optional[float]) -> dict[str, int]:
    flags = (REPLACE if replace else 0) | (PIN if pin else 0)
    return {"flags": flags, "a": 0 if ttl is None else max(1, round(ttl * 1000))}


def _as_reader(obj: Any) -> Optional[pa.RecordBatchReader]:
    if isinstance(obj, pa.RecordBatchReader):
        return obj
    if isinstance(obj, pa.Table):
        return obj.to_reader()
    if isinstance(obj, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(obj.schema, [obj])
    return None


def _arrow_type(dtype: Any) -> Optional[pa.DataType]:
    if dtype.kind in "iuf" and dtype.isnative and dtype.itemsize in (1, 2, 4, 8):
        return pa.from_numpy_dtype(dtype)
    return None


def _as_values(obj: Any) -> Optional[pa.Array]:
    """The elements of a numpy array of numbers, over its memory if it lies in one piece."""
    if type(obj).__module__ != "numpy" or type(obj).__name__ != "ndarray":
        return None
    kind = _arrow_type(obj.dtype)
    if kind is None or obj.size >= 1 << 31:
        return None
    import numpy as np

    flat = np.ascontiguousarray(obj).reshape(-1)
    return pa.Array.from_buffers(kind, flat.size, [None, pa.py_buffer(flat)])
