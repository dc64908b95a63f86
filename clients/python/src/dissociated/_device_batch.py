"""Record batches and arrays in a GPU's memory, for the libraries that work there."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional, Union

import pyarrow as pa

from . import _cuda, _device_arrow
from ._decoder import _Source
from ._device_layout import Column, columns_of
from ._device_memory import ALIGNMENT, Hold, View, own_memory, start_keeper
from .errors import Code, DissociatedError
from .wire import IpcMessage
from .wire.body import u64s

_LENGTH = struct.Struct("<I")
_HOST_ALIGNMENT = 64


class DeviceArray(View):
    """Elements of one type in a GPU's memory, row-major.

    It has ``__cuda_array_interface__``, so that ``cupy.asarray``, ``numba.cuda.as_cuda_array`` and
    ``torch.as_tensor`` take it without a copy, and ``__dlpack__`` where the package cuda-core is
    installed. The memory lasts until the last such view has gone or is closed. It may be another
    process's, and what is written to it is seen by all who read it: do not. (That it is read-only
    is not said in the interface, since torch takes nothing that says so.)
    """

    def __init__(self, hold: Hold, address: int, shape: tuple[int, ...], typestr: str) -> None:
        super().__init__(hold)
        self._address = address
        self.shape = shape
        self.typestr = typestr
        """The type of an element as numpy writes it; its sign of the byte order included."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * int(self.typestr[2:])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._held()
        return {
            "shape": self.shape,
            "typestr": self.typestr,
            "data": (self._address if self.nbytes else 0, False),
            "strides": None,
            "version": 3,
            "stream": None,  # everything is there already
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _device_arrow.DEVICE_CUDA, self.device

    def __dlpack__(self, **options: Any) -> Any:
        held = self._held()
        try:
            from cuda.core.utils import StridedMemoryView
        except ImportError as e:
            raise DissociatedError(
                Code.UNSUPPORTED, f"no DLPack: the package cuda-core is missing: {e}"
            ) from e
        options["stream"] = None  # it is readable on any
        with held.device.current():
            return StridedMemoryView.from_cuda_array_interface(self, stream_ptr=-1).__dlpack__(
                **options
            )

    def copy_to_host(self) -> Any:
        """A copy as an array of numpy, or as bytes-like memory of pyarrow's where there is none."""
        memory = pa.allocate_buffer(self.nbytes)
        if self.nbytes:
            self._held().device.to_host([(memory.address, self._address, self.nbytes)])
        try:
            import numpy as np
        except ImportError:
            return memory
        return np.frombuffer(memory, self.typestr).reshape(self.shape)


class DeviceColumn(View):
    """One column of a batch in a GPU's memory.

    It has ``__cuda_array_interface__`` where its values are numbers and none is null: everybody
    else would take what lies in a null's place for a value. :attr:`values` gives them all the same,
    :attr:`validity` and :meth:`buffer` what Arrow has besides, :meth:`child` what is nested.
    """

    def __init__(self, hold: Hold, column: Column) -> None:
        super().__init__(hold)
        self._column = column

    @property
    def field(self) -> pa.Field:
        """Name, type and metadata."""
        return self._column.field

    @property
    def type(self) -> pa.DataType:
        """The type."""
        return self._column.field.type

    @property
    def null_count(self) -> int:
        """How many values are null."""
        return self._column.nulls

    def __len__(self) -> int:
        return self._column.length

    def child(self, index: int) -> DeviceColumn:
        """The values of a list, a field of a struct, the entries of a map."""
        return DeviceColumn(self._held(), self._column.children[index])

    def buffer(self, index: int) -> Optional[DeviceArray]:
        """The bytes of a buffer, as Arrow's C data interface counts them; None without bytes."""
        address, length = self._column.buffers[index]
        return DeviceArray(self._held(), address, (length,), "|u1") if length else None

    @property
    def buffer_count(self) -> int:
        """How many buffers there are."""
        return len(self._column.buffers)

    @property
    def validity(self) -> Optional[DeviceArray]:
        """A bit for each value, 0 for null; None where none is."""
        return self.buffer(0) if self.null_count else None

    @property
    def values(self) -> DeviceArray:
        """The numbers, those in the place of nulls included. Lists of one length are rows."""
        found = _numbers(self._column)
        if found is None:
            raise DissociatedError(
                Code.UNSUPPORTED,
                f"column has no numbers to view, name={self.field.name} type={self.type}",
            )
        address, shape, typestr = found
        return DeviceArray(self._held(), address, shape, typestr)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # An AttributeError is how a type says here that it has no such thing.
        if _has_nulls(self._column):
            raise AttributeError(
                f"column has nulls, use its values and validity: name={self.field.name} "
                f"nulls={self.null_count}"
            )
        try:
            return self.values.__cuda_array_interface__
        except DissociatedError as e:
            raise AttributeError(e.message) from e

    def __dlpack_device__(self) -> tuple[int, int]:
        return _device_arrow.DEVICE_CUDA, self.device

    def __dlpack__(self, **options: Any) -> Any:
        _ = self.__cuda_array_interface__
        return self.values.__dlpack__(**options)

    def __arrow_c_device_array__(
        self, requested_schema: Any = None, **_options: Any
    ) -> tuple[Any, Any]:
        """The column as Arrow's C device interface has it; keeps the memory until released."""
        held = self._held()
        column = self._column
        array = _device_arrow.export(
            [column], column.length, held.device.ordinal, held, as_struct=False
        )
        return column.field.__arrow_c_schema__(), _device_arrow.capsule_of(array)


def _has_nulls(column: Column) -> bool:
    return column.nulls > 0 or any(_has_nulls(child) for child in column.children)


def _typestr(kind: pa.DataType) -> Optional[str]:
    """The type of numbers as numpy writes it; dates and times are integers."""
    types = pa.types
    if types.is_unsigned_integer(kind):
        letter = "u"
    elif types.is_floating(kind):
        letter = "f"
    elif types.is_signed_integer(kind) or (types.is_temporal(kind) and not types.is_interval(kind)):
        letter = "i"
    else:
        return None
    size = kind.bit_width // 8
    return f"{'<' if size > 1 else '|'}{letter}{size}"


def _numbers(column: Column) -> Optional[tuple[int, tuple[int, ...], str]]:
    """Address, shape and type of a column's numbers; None where it has none."""
    if pa.types.is_fixed_size_list(column.storage):
        (child,) = column.children
        inner = _numbers(child)
        size = int(column.storage.list_size)
        if inner is None or child.length < column.length * size:
            return None
        shape: Any = getattr(column.field.type, "shape", None)
        permutation = getattr(column.field.type, "permutation", None)
        if shape is None or permutation is not None or math.prod(shape) != size:
            shape = [size]
        return inner[0], (column.length, *shape, *inner[1][1:]), inner[2]
    typestr = _typestr(column.storage)
    if typestr is None:
        return None
    return column.buffers[1][0], (column.length,), typestr


class DeviceBatch(View):
    """A record batch in a GPU's memory, its own or another process's.

    The memory is given back when the batch and everything that views it have gone or are closed,
    after the work on the device has been waited for (see :meth:`used_by`). Thread-safe.
    """

    def __init__(
        self,
        schema: pa.Schema,
        message: IpcMessage,
        buffers: Sequence[tuple[int, int]],
        hold: Callable[[], Hold],
    ) -> None:
        """Checks that the buffers can be what the schema says.

        :param message: what the metadata says; where its buffers lie is not used
        :param buffers: address on the device and length of each
        :param hold: begins to hold the memory, last of all, since nothing may fail once it is held
        """
        start_keeper()
        self.schema = schema
        self.num_rows = message.rows
        self._message = message
        self._buffers = buffers
        self._columns = columns_of(
            schema, message.rows, message.nodes(), buffers, message.variadic_counts()
        )
        super().__init__(hold())

    @property
    def num_columns(self) -> int:
        """How many columns there are."""
        return len(self._columns)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(length for _, length in self._buffers)

    @property
    def custom_metadata(self) -> dict[str, str]:
        """What the producer attached to the batch."""
        return self._message.custom_metadata()

    def column(self, which: Union[int, str]) -> DeviceColumn:
        """A column by its number or name; it keeps the memory even when the batch is closed."""
        if isinstance(which, str):
            found = self.schema.get_field_index(which)
            if found < 0:
                raise KeyError(f"no such column, or several: {which}")
            which = found
        return DeviceColumn(self._held(), self._columns[which])

    __getitem__ = column

    def __len__(self) -> int:
        return self.num_rows

    def columns(self) -> Iterator[DeviceColumn]:
        """All columns."""
        return (self.column(i) for i in range(self.num_columns))

    def __arrow_c_device_array__(
        self, requested_schema: Any = None, **_options: Any
    ) -> tuple[Any, Any]:
        """The batch as Arrow's C device interface has it; keeps the memory until released."""
        held = self._held()
        array = _device_arrow.export(
            self._columns, self.num_rows, held.device.ordinal, held, as_struct=True
        )
        return self.schema.__arrow_c_schema__(), _device_arrow.capsule_of(array)

    def copy_to_host(self) -> pa.RecordBatch:
        """A copy in host memory, whose offsets, views and indices have been checked."""
        held = self._held()
        places = list(aligned([length for _, length in self._buffers], _HOST_ALIGNMENT))
        size = places[-1] if places else 0
        memory = pa.allocate_buffer(size)
        copies = [
            (memory.address + place, address, length)
            for place, (address, length) in zip(places, self._buffers)
        ]
        held.device.to_host(copies)
        return _assembled(self.schema, self._message, places, self._buffers, memory)


def _assembled(
    schema: pa.Schema,
    message: IpcMessage,
    places: Sequence[int],
    buffers: Sequence[tuple[int, int]],
    memory: pa.Buffer,
) -> pa.RecordBatch:
    """The batch whose buffers lie at these places; Arrow's own reader puts it together."""
    pairs = [value for place, (_, length) in zip(places, buffers) for value in (place, length)]
    source = _Source()
    flatbuffer = pa.ipc.read_message(schema.serialize()).metadata.to_pybytes()
    moved: Any = message.flatbuffer
    if memory.size or message.body_length:
        moved = message.relocated(u64s(len(pairs)).pack(*pairs), memory.size)
    for part in (flatbuffer, moved):
        source.put(_LENGTH.pack(len(part)))
        source.put(part)
    if memory.size:
        source.put(memory)
    try:
        batch = pa.ipc.open_stream(pa.PythonFile(source, mode="r")).read_next_batch()
        batch.validate(full=True)
        return batch
    except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
        text = str(e).replace("\n", " ")
        raise DissociatedError(Code.DATA_CORRUPT, f"batch refused: {text}") from e


def aligned(lengths: Sequence[int], alignment: int) -> Iterator[int]:
    """Where each buffer begins when one lies behind the other, and where the last one ends."""
    at = 0
    for length in lengths:
        yield at
        at += -(-length // alignment) * alignment
    yield at


def upload(
    schema: pa.Schema, message: IpcMessage, parts: Sequence[pa.Buffer], ordinal: int = 0
) -> DeviceBatch:
    """Copies a batch to memory of this process's on a device.

    :param parts: the packed body, in pieces
    """
    start_keeper()
    layout = message.buffers()
    offsets, lengths = layout[0::2], layout[1::2]
    places = list(aligned(lengths, ALIGNMENT))
    body = _Body(parts)
    device = _cuda.device(ordinal)
    base, hold = own_memory(device, places[-1])
    copies = [
        (base + place + done, address, length)
        for place, offset, whole in zip(places, offsets, lengths)
        for done, address, length in body.pieces(offset, whole)
    ]
    device.to_device(copies)
    buffers = [(base + place, n) if n else (0, 0) for place, n in zip(places, lengths)]
    return DeviceBatch(schema, message, buffers, lambda: hold)


class _Body:
    """A packed body in pieces."""

    def __init__(self, parts: Sequence[pa.Buffer]) -> None:
        self._parts: list[tuple[int, int, int]] = []
        at = 0
        for part in parts:
            self._parts.append((at, at + part.size, part.address))
            at += part.size

    def pieces(self, offset: int, length: int) -> Iterator[tuple[int, int, int]]:
        """Distance, address and length of each piece of a range."""
        end = offset + length
        if end > (self._parts[-1][1] if self._parts else 0):
            raise DissociatedError(
                Code.PROTOCOL_VIOLATION,
                f"metadata refused: buffer outside its body, offset={offset}",
            )
        for begin, stop, address in self._parts:
            low, high = max(begin, offset), min(stop, end)
            if low < high:
                yield low - offset, address + low - begin, high - low
