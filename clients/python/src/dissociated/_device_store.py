"""Objects of a store in a GPU's memory, which the daemon owns."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Any, Optional

import pyarrow as pa

from . import _cuda
from ._arrays import NUMPY, TORCH, TensorType, numpy_type
from ._cuda import CudaDevice
from ._device_batch import DeviceArray, DeviceBatch, upload
from ._device_memory import Hold, own_memory, start_keeper
from ._store_leases import Lease
from ._store_table import tensor_of
from .errors import Code, DissociatedError
from .wire import IpcMessage, MessageParser
from .wire.ipc_message import DICTIONARY_BATCH, RECORD_BATCH, SCHEMA
from .wire.store import ObjectType

_PREFIX = struct.Struct("<iI")
_CONTINUATION = -1


class DeviceTensor(DeviceArray):
    """A tensor of a store in a GPU's memory; see :class:`DeviceArray` for what takes it."""

    def __init__(
        self,
        hold: Hold,
        address: int,
        shape: tuple[int, ...],
        typestr: str,
        kind: TensorType,
        lease: Optional[Lease],
    ) -> None:
        super().__init__(hold, address, shape, typestr)
        self.kind = kind
        """What its elements are, where numpy's types do not say so."""
        self._lease = lease

    @property
    def dtype(self) -> str:
        """The type of an element by its name, which may be one that numpy does not know."""
        return self.kind.dtype or self.typestr

    def as_torch(self) -> Any:
        """A tensor of torch over the same memory."""
        import torch

        _ = self._held()
        found = torch.as_tensor(self, device=f"cuda:{self.device}")
        kind = getattr(torch, self.kind.dtype, None) if self.kind.dtype else None
        return found if kind is None or found.dtype is kind else found.view(kind)

    def claim(self, timeout: float) -> Optional[tuple[str, int, int]]:
        """A store's path, and a token by which another process can have this tensor, once."""
        lease = self._lease
        self._held()
        return None if lease is None else (lease.path, *lease.claim(timeout))

    def __reduce__(self) -> Any:
        """By reference wherever it is pickled, since its memory is a store's already."""
        from ._device_references import DEFAULT_SECONDS, load_device

        claimed = self.claim(DEFAULT_SECONDS)
        if claimed is None:
            raise DissociatedError(
                Code.UNSUPPORTED, "tensor not pickled: it is in no store; put it first"
            )
        return load_device, (*claimed, "")

    def close(self) -> None:
        self._lease = None
        super().close()


class DeviceTable:
    """A table of a store in a GPU's memory: batches in the order in which they were put."""

    def __init__(self, schema: pa.Schema, batches: list[DeviceBatch]) -> None:
        self.schema = schema
        self.batches = batches

    @property
    def num_rows(self) -> int:
        """Rows of all batches."""
        return sum(batch.num_rows for batch in self.batches)

    def copy_to_host(self) -> pa.Table:
        """A copy in host memory, checked to its last offset."""
        return pa.Table.from_batches([b.copy_to_host() for b in self.batches], self.schema)

    def close(self) -> None:
        """Lets go of all batches. Idempotent."""
        for batch in self.batches:
            batch.close()

    def __enter__(self) -> DeviceTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def upload_array(name: str, value: Any) -> DeviceTensor:
    """A tensor or bytes of host memory, copied to memory of this process's on a device."""
    import numpy as np

    array = np.frombuffer(value, "u1") if isinstance(value, memoryview) else value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        array = array.numpy()
    kind = numpy_type(array.dtype) if isinstance(array, np.ndarray) else None
    if kind is None:
        raise DissociatedError(
            Code.UNSUPPORTED, f"object not brought to a device: it is no tensor, name={name}"
        )
    start_keeper()
    device = _cuda.device(0)
    address, hold = own_memory(device, array.nbytes)
    device.to_device([(address, array.ctypes.data, array.nbytes)])
    return DeviceTensor(hold, address, array.shape, array.dtype.str, kind, None)


class _Lease:
    """What holds on a lease's memory share; it ends with the last of them."""

    def __init__(self, lease: Lease) -> None:
        self.lease: Optional[Lease] = lease

    def end(self) -> None:
        self.lease = None


def _hold(device: CudaDevice, lease: Lease) -> Hold:
    start_keeper()
    return Hold(device, _Lease(lease).end)


def read_device_object(
    name: str,
    kind: ObjectType,
    buffers: Sequence[pa.Buffer],
    lease: Lease,
    like: Optional[str] = None,
) -> Any:
    """An object with buffers on a device, over their memory. UNSUPPORTED without CUDA."""
    _cuda.require()
    places = {
        index: (memory.device, memory.resolve(offset, length), length)
        for index, (arena, offset, length) in lease.device.items()
        for memory in (lease.channel.arenas.open(arena),)
    }
    if kind is ObjectType.BYTES:
        device, address, length = places[0]
        return DeviceArray(_hold(device, lease), address, (length,), "|u1")
    if kind is ObjectType.PICKLE:
        raise DissociatedError(
            Code.UNSUPPORTED, f"pickles are not read from device memory, name={name}"
        )
    if 0 in places:
        raise _corrupt("its metadata is on a device")
    table = _table(buffers, places, lease)
    if kind is ObjectType.TABLE:
        return table
    tensor = _tensor(table, lease)
    if like == TORCH or (like is None and tensor.kind.framework == TORCH and _has_torch()):
        return tensor.as_torch()
    return tensor.copy_to_host() if like == NUMPY else tensor


def _has_torch() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


def _corrupt(why: object) -> DissociatedError:
    return DissociatedError(Code.DATA_CORRUPT, f"not a table: {why}")


def _table(
    buffers: Sequence[pa.Buffer], places: dict[int, tuple[CudaDevice, int, int]], lease: Lease
) -> DeviceTable:
    """The batches that the metadata names; bodies in host memory are copied to the device."""
    schema: Optional[pa.Schema] = None
    batches: list[DeviceBatch] = []
    sizes = [places[i][2] if i in places else b.size for i, b in enumerate(buffers)]
    bodies = _Bodies(sizes)
    for raw, message in _messages(buffers[0].to_pybytes()):
        if message.kind == SCHEMA and schema is None:
            schema = _schema(raw)
        elif message.kind == DICTIONARY_BATCH or message.is_compressed:
            raise DissociatedError(
                Code.UNSUPPORTED, "dictionaries and compressed bodies are not read where they lie"
            )
        elif message.kind == RECORD_BATCH and schema is not None:
            number, at = bodies.take(message.body_length)
            if number in places:
                device, base, _ = places[number]
                batches.append(_there(schema, message, device, base + at, lease))
            else:
                body = buffers[number].slice(at, message.body_length)
                batches.append(upload(schema, message, [body]))
        else:
            raise _corrupt(f"a message that is not expected, type={message.kind}")
    bodies.require_end()
    if schema is None:
        raise _corrupt("no schema")
    return DeviceTable(schema, batches)


def _there(
    schema: pa.Schema, message: IpcMessage, device: CudaDevice, base: int, lease: Lease
) -> DeviceBatch:
    layout, end = message.buffers(), message.body_length
    found = []
    for offset, length in zip(layout[0::2], layout[1::2]):
        if offset + length > end:
            raise _corrupt(f"a buffer outside its body, offset={offset} length={length}")
        found.append((base + offset, length) if length else (0, 0))
    try:
        return DeviceBatch(schema, message, found, lambda: _hold(device, lease))
    except DissociatedError as e:
        if e.code is Code.PROTOCOL_VIOLATION:  # not the daemon's, who has not looked into it
            raise _corrupt(e.message) from e
        raise


class _Bodies:
    """Where the bodies lie: each behind the one before, or in the next buffer."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self._number, self._used = 1, 0

    def take(self, length: int) -> tuple[int, int]:
        """The number of the buffer in which the next body lies, and where."""
        if not length:
            return 0, 0
        while self._number < len(self._sizes) and self._used == self._sizes[self._number]:
            self._number, self._used = self._number + 1, 0
        if self._number == len(self._sizes) or length > self._sizes[self._number] - self._used:
            raise _corrupt("a body is missing or too short")
        at, self._used = self._used, self._used + length
        return self._number, at

    def require_end(self) -> None:
        if self._number < len(self._sizes) and self._used < sum(self._sizes[self._number :]):
            raise _corrupt("bytes that belong to no batch")


def _messages(metadata: bytes) -> Any:
    """Each message of a stream without bodies, in its encapsulated form and parsed."""
    parser, at = MessageParser(), 0
    while at < len(metadata):
        continuation, length = (
            _PREFIX.unpack_from(metadata, at) if len(metadata) - at >= _PREFIX.size else (0, 0)
        )
        begin = at + _PREFIX.size
        flatbuffer = metadata[begin : begin + length]
        if continuation != _CONTINUATION or not length or len(flatbuffer) != length:
            raise _corrupt("a message is cut")
        try:
            message = parser.parse(flatbuffer)
            _ = message.body_length
        except DissociatedError as e:
            raise _corrupt(e.message) from e
        yield metadata[at : begin + length], message
        at = begin + length


def _schema(encapsulated: bytes) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(encapsulated))
        _ = schema.names
        return schema
    except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
        raise _corrupt(e) from e


def _tensor(table: DeviceTable, lease: Lease) -> DeviceTensor:
    if len(table.batches) != 1:
        raise _corrupt("not one row of one tensor")
    (batch,) = table.batches
    if batch.num_columns != 1 or batch.num_rows != 1:
        raise _corrupt("not one row of one tensor")
    column = batch._columns[0]
    if not pa.types.is_fixed_size_list(column.storage) or column.nulls:
        raise _corrupt("no tensor")
    values = column.children[0]
    kind, shape = tensor_of(table.schema.field(0), values.storage, values.length)
    if values.nulls:
        raise _corrupt("a tensor with nulls")
    typestr = _typestr(kind)
    return DeviceTensor(
        batch._held(), values.buffers[1][0], shape, typestr, kind, lease if lease.device else None
    )


def _typestr(kind: TensorType) -> str:
    import numpy as np

    if kind.dtype and kind.dtype.partition("[")[0] in (
        "bool",
        "complex64",
        "complex128",
        "datetime64",
        "timedelta64",
    ):
        try:
            return np.dtype(kind.dtype).str
        except TypeError as e:
            raise _corrupt(f"type of its elements, dtype={kind.dtype!r}") from e
    return np.dtype(kind.element.to_pandas_dtype()).str
