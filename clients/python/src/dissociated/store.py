"""Named, immutable objects that every process of a host shares, put and got without copies.

>>> with dissociated.store.connect("/tmp/store.sock") as store:    # doctest: +SKIP
...     store.put("array", numpy.arange(10))
...     print(store.get("array").sum())

Bytes come back as a read-only ``memoryview``, tables as ``pyarrow.Table``, frames of polars as
such, arrays as read-only numpy arrays, tensors of torch as tensors whose changes stay in this
process, and everything else as pickle makes it, its large parts over shared memory. What was got is
on lease until the last view of it goes.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

import pyarrow as pa

from ._arrays import Dense, TensorType, as_dense, numpy_type
from ._copied import Copied
from ._daemon import Daemon
from ._devices import put_on_device, require_on_host
from ._own_memory import OwnSegment, create_file, write_all
from ._pickling import dump_parts
from ._store_channel import StoreChannel
from ._store_events import Event, Events
from ._store_leases import Lease
from ._store_table import split_stream, tensor_metadata
from ._store_values import as_reader, read_object
from .errors import Code, DissociatedError
from .wire.frame import OFFSET_BITS
from .wire.store import (
    FOR_EVER,
    INLINE,
    MAX_BUFFERS,
    MAX_MESSAGE,
    OBJECT_TYPES,
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

__all__ = [
    "Event",
    "Events",
    "ObjectInfo",
    "ObjectType",
    "Store",
    "connect",
    "start",
]

_INLINE_LIMIT = 64 << 10  # up to here a copy through the socket costs less than a segment
_PAGE_OF_NAMES = 1000
_ALIGNMENT = 64


def connect(path: str) -> Store:
    """Connects to the daemon that listens at a Unix socket."""
    return Store(path)


def start(memory: Optional[str] = None, *, options: Sequence[str] = ()) -> Store:
    """Starts a daemon for this process alone, and connects to it.

    It ends when the store is closed, and with this process, however that ends. What was got stays
    readable. Needs the program ``dissociated``: in the folder that the environment variable
    ``DISSOCIATED_HOME`` names, on the ``PATH``, or in the checkout that this package is part of.

    :param memory: how much it may keep, like "4g"
    :param options: more words for ``dissociated serve``
    """
    limit = [] if memory is None else ["--memory", memory]
    daemon = Daemon([*limit, *options])
    try:
        return Store(daemon.socket, daemon)
    except BaseException:
        daemon.close()
        raise


class Store:
    """A connection to a store. Thread-safe; a forked child connects anew.

    What was got stays readable as long as it is referenced, also when this is closed or the daemon
    has gone.
    """

    def __init__(self, path: str, daemon: Optional[Daemon] = None) -> None:
        self.path = path
        self._daemon = daemon
        self._lock = threading.Lock()
        self._is_closed = False
        self._connected = StoreChannel(path)
        _stores.add(self)

    @property
    def _channel(self) -> StoreChannel:
        """The connection; a new one where the daemon went, or where this is a forked child."""
        if self._connected.is_usable:
            return self._connected
        with self._lock:
            if not self._is_closed and not self._connected.is_usable:
                self._connected = StoreChannel(self.path)
            return self._connected

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

        :param obj: bytes-like; a table, batch or reader of pyarrow, or a frame of polars; an array
            of numpy, torch or TensorFlow, also in a GPU's memory; anything else that pickle takes,
            pandas' frames too
        :param replace: take the name over if it is taken
        :param pin: never evict it
        :param ttl: how many seconds it lives; until it is deleted by default
        """
        options = _options(replace, pin, ttl)
        if put_on_device(self._channel, name, obj, options):
            return
        if isinstance(obj, (bytes, bytearray, memoryview, pa.Buffer)):
            self._put_parts(name, ObjectType.BYTES, [obj], options)
            return
        if self._put_dense(name, as_dense(obj), options):
            return
        reader = as_reader(obj)
        if isinstance(obj, (pa.Table, pa.RecordBatch)) and obj.nbytes > _INLINE_LIMIT:
            if self._put_copied(name, ObjectType.TABLE, Copied.of_stream(reader), options):
                return
            reader = as_reader(obj)
        if reader is not None:
            self._put_stream(name, ObjectType.TABLE, reader, options)
            return
        self._put_parts(name, ObjectType.PICKLE, dump_parts(obj), options)

    def put_tensor(
        self,
        name: str,
        tensor: Any,
        *,
        replace: bool = False,
        pin: bool = False,
        ttl: Optional[float] = None,
    ) -> Any:
        """Puts a tensor, and gives the shared one: numpy's read-only, torch's as :meth:`get` does.

        :param tensor: an array of numpy or torch (its elements; not its gradient), or anything
            that numpy makes an array of; what lies in a GPU's memory (whatever has
            ``__cuda_array_interface__``) is copied there, into memory of the daemon's
        """
        if put_on_device(self._channel, name, tensor, _options(replace, pin, ttl)):
            return self.get(name)
        dense = as_dense(tensor, insist=True)
        if not self._put_dense(name, dense, _options(replace, pin, ttl)):
            import numpy as np

            self.put(name, np.asarray(tensor), replace=replace, pin=pin, ttl=ttl)
        return self.get(name)

    def _put_dense(self, name: str, dense: Optional[Dense], options: dict[str, int]) -> bool:
        if dense is None:
            return False
        import numpy as np

        array = dense.array
        if array.nbytes > _INLINE_LIMIT and array.flags.c_contiguous:
            flat = array.reshape(-1).view(np.uint8)
            metadata = tensor_metadata(dense.type, array.shape)
            copied = Copied.of_body(metadata, [flat, bytes(-flat.size % 8)])
            if self._put_copied(name, ObjectType.TENSOR, copied, options):
                return True
        with self._tensor(name, dense.type, array.shape, array.dtype, options) as target:
            np.copyto(target, array)
        return True

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
            channel = self._channel
            number = channel.next_segments(1)[0]
            entries, at = [], 0
            for view in views:
                write_all(descriptor, view)
                entries.append(_shared(number, at, len(view)))
                at += len(view)
                write_all(descriptor, bytes(-at % _ALIGNMENT))
                at += -at % _ALIGNMENT
            segment.freeze()
            self._send_put(name, kind, entries, b"", options, [(number, segment)], channel)

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
            metadata, bodies = split_stream(lambda at, length: os.pread(descriptor, length, at))
            channel = self._channel
            number = channel.next_segments(1)[0]
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
            self._send_put(name, kind, entries, data, options, [(number, segment)], channel)

    def _send_put(
        self,
        name: str,
        kind: ObjectType,
        entries: Sequence[bytes],
        data: bytes,
        options: dict[str, int],
        segments: Optional[list[Any]] = None,
        channel: Optional[StoreChannel] = None,
    ) -> None:
        """Sends a put; over the connection whose number the segments have."""
        (channel or self._channel).call(
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

        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        kind = numpy_type(dtype)
        if kind is None:
            raise DissociatedError(Code.UNSUPPORTED, f"no tensors of that type, dtype={dtype}")
        with self._tensor(name, kind, shape, dtype, _options(replace, pin, ttl)) as array:
            yield array

    @contextlib.contextmanager
    def _tensor(
        self, name: str, kind: TensorType, shape: Any, dtype: Any, options: dict[str, int]
    ) -> Iterator[Any]:
        import numpy as np

        check_name(name)
        length = math.prod(shape) * dtype.itemsize
        body = max(8, -(-length // 8) * 8)
        small = body <= _INLINE_LIMIT
        with contextlib.ExitStack() as stack:
            memory: Any = bytearray(body if small else 0)
            if not small:
                segment = stack.enter_context(contextlib.closing(OwnSegment(create_file(), body)))
                memory = segment.view(body)
            array = np.ndarray(shape, dtype, memory)
            yield array
            array.flags.writeable = False
            data = tensor_metadata(kind, shape)
            entries = [buffer_entry(INLINE, 0, len(data))]
            if small:
                if length:
                    entries.append(buffer_entry(INLINE, len(data), body))
                    data += memory
                self._send_put(name, ObjectType.TENSOR, entries, data, options)
                return
            segment.freeze()
            channel = self._channel
            number = channel.next_segments(1)[0]
            entries.append(_shared(number, 0, body))
            handed = [(number, segment)]
            self._send_put(name, ObjectType.TENSOR, entries, data, options, handed, channel)

    # ---- get

    def get(self, name: str, *, timeout: Optional[float] = 0) -> Any:
        """The object of that name, over the shared memory.

        What Python's pickle made is unpickled, which runs what it says: see ``stat(name).type``
        first where not everybody who may put is trusted.

        :param timeout: how many seconds to wait for the name; None for ever
        """
        return self._value(name, timeout, None)

    def get_tensor(
        self, name: str, *, like: Optional[str] = None, timeout: Optional[float] = 0
    ) -> Any:
        """The tensor of that name, numpy's or torch's as it was put.

        A numpy array is read-only. Torch knows no such thing: its tensor is a private view, and
        what is written to it stays in this process.

        :param like: "numpy" or "torch", whatever it was put as; "numpy" copies one from a GPU
        """
        if like not in (None, "numpy", "torch"):
            raise DissociatedError(Code.INVALID_ARGUMENT, f"no tensors like that, like={like}")
        return self._value(name, timeout, like, True)

    def _value(
        self, name: str, timeout: Optional[float], like: Optional[str], tensor: bool = False
    ) -> Any:
        kind, buffers, lease = self.lease(name, timeout)
        if tensor and kind not in (ObjectType.TENSOR, ObjectType.PICKLE):
            raise DissociatedError(
                Code.INVALID_ARGUMENT, f"not a tensor, name={name} type={kind.name}"
            )
        return read_object(name, kind, buffers, lease, like)

    def get_buffers(self, name: str, *, timeout: Optional[float] = 0) -> list[pa.Buffer]:
        """The buffers of an object as they are."""
        _, buffers, lease = self.lease(name, timeout)
        require_on_host(name, lease)
        return buffers

    def lease(
        self, name: str, timeout: Optional[float] = 0
    ) -> tuple[ObjectType, list[pa.Buffer], Lease]:
        """An object's type and buffers, and the lease that they are under."""
        wait = FOR_EVER if timeout is None else max(0, round(timeout * 1000))
        lease = self._channel.lease(Op.GET, check_name(name), wait)
        return _opened(lease)

    def take(self, high: int, low: int) -> tuple[list[pa.Buffer], Lease]:
        """The buffers of the object that another process claimed, see :meth:`Lease.claim`."""
        return _opened(self._channel.lease(Op.TAKE, a=high, b=low))[1:]

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

    def subscribe(self, prefix: str = "") -> Events:
        """Tells of names that begin with ``prefix`` and come or go, from now on."""
        return Events(self.path, prefix)

    def usage(self) -> dict[str, Any]:
        """What the store has, and who holds it."""
        return self._channel.call(Op.USAGE).usage()

    def close(self) -> None:
        """Ends the connection, and the daemon if it is this store's. Idempotent.

        What is in use stays readable.
        """
        with self._lock:
            self._is_closed = True
        self._connected.close()
        if self._daemon is not None:
            self._daemon.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _opened(lease: Lease) -> tuple[ObjectType, list[pa.Buffer], Lease]:
    """What a lease is on."""
    kind = OBJECT_TYPES.get(lease.kind)
    if kind is None:
        raise DissociatedError(
            Code.UNSUPPORTED, f"object of a type not known, type={lease.kind} store={lease.path}"
        )
    buffers = [
        pa.foreign_buffer(address, length, lease) if length else pa.py_buffer(b"")
        for address, length in lease.places
    ]
    return kind, buffers, lease


def _shared(segment: int, offset: int, length: int) -> bytes:
    return buffer_entry(SHARED, segment << OFFSET_BITS | offset, length)


def _options(replace: bool, pin: bool, ttl: Optional[float]) -> dict[str, int]:
    flags = (REPLACE if replace else 0) | (PIN if pin else 0)
    return {"flags": flags, "a": 0 if ttl is None else max(1, round(ttl * 1000))}


_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _after_fork() -> None:
    """Another thread of the parent's may have held the lock."""
    for store in list(_stores):
        store._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
