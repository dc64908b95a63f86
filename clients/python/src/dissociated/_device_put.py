"""Puts what lies in a GPU's memory: a copy on the device, into memory of the daemon's there."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import pyarrow as pa

from . import _cuda
from ._arrays import MOST_ELEMENTS, TORCH, WIDTHS, TensorType, numpy_type
from ._cuda import CudaDevice
from ._device_batch import DeviceBatch, aligned
from ._device_memory import ALIGNMENT, start_keeper
from ._store_channel import StoreChannel
from ._store_table import tensor_metadata
from .errors import Code, DissociatedError
from .wire import IpcMessage
from .wire.body import u64s
from .wire.frame import OFFSET_BITS
from .wire.store import DEVICE, INLINE, ObjectType, Op, buffer_entry, check_name
from .wire.store_device import device_bytes

_PREFIX = struct.Struct("<iI")
_CONTINUATION = -1
_EIGHT = 8


class Source(NamedTuple):
    """Elements on a device, in one piece."""

    device: CudaDevice
    address: int
    shape: tuple[int, ...]
    type: TensorType
    owner: Any
    """Keeps the memory."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        kind = self.type
        return math.prod(self.shape) * kind.per_element * kind.element.bit_width // 8


def source_of(obj: Any) -> Optional[Source]:
    """What an array on a device is; None for everything else.

    Taken is what has ``__cuda_array_interface__``, and what torch has on a GPU. What its stream has
    begun is waited for.
    """
    torch = sys.modules.get("torch")
    kind: Optional[TensorType] = None
    if torch is not None and isinstance(obj, torch.Tensor):
        if obj.device.type != "cuda":
            return None
        obj, kind = _of_torch(torch, obj)
    if isinstance(obj, type):
        return None
    shown = getattr(obj, "__cuda_array_interface__", None)
    return None if shown is None else _shown(obj, shown, kind)


def _of_torch(torch: Any, tensor: Any) -> tuple[Any, TensorType]:
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    name, size = str(tensor.dtype).partition(".")[2], tensor.element_size()
    kind = _type_named(name)
    if kind is None and size in WIDTHS:  # numpy has no such type
        kind = TensorType(pa.type_for_alias(WIDTHS[size]), name)
        tensor = tensor.view(torch.uint8 if size == 1 else torch.int16)
    if kind is None:
        raise DissociatedError(Code.UNSUPPORTED, f"no tensors of that type, dtype={tensor.dtype}")
    return tensor, kind._replace(framework=TORCH)


def _type_named(name: str) -> Optional[TensorType]:
    import numpy as np

    try:
        return numpy_type(np.dtype(name))
    except TypeError:
        return None


def _shown(owner: Any, shown: dict[str, Any], kind: Optional[TensorType]) -> Source:
    import numpy as np

    _cuda.require()
    try:
        shape = tuple(int(n) for n in shown["shape"])
        dtype = np.dtype(shown["typestr"])
        address = int(shown["data"][0] or 0)
        strides, mask = shown.get("strides"), shown.get("mask")
    except (KeyError, TypeError, ValueError, IndexError) as e:
        raise DissociatedError(
            Code.INVALID_ARGUMENT, f"tensor not put: its __cuda_array_interface__ is damaged: {e}"
        ) from e
    kind = kind or numpy_type(dtype)
    if kind is None or not dtype.isnative:
        raise DissociatedError(Code.UNSUPPORTED, f"no tensors of that type, dtype={dtype}")
    if mask is not None or any(n < 0 for n in shape):
        raise DissociatedError(Code.UNSUPPORTED, f"tensor not put: it has a mask, shape={shape}")
    count = math.prod(shape)
    if count * kind.per_element > MOST_ELEMENTS:
        raise DissociatedError(
            Code.UNSUPPORTED, f"tensor not put: too many elements, shape={list(shape)}"
        )
    if strides is not None and count and tuple(strides) != _row_major(shape, dtype.itemsize):
        raise DissociatedError(
            Code.UNSUPPORTED,
            "tensor not put: its elements do not lie in one piece, row by row; copy it so first, "
            f"shape={list(shape)} strides={list(strides)}",
        )
    device = _cuda.device_at(address) if count else _cuda.device(0)
    stream = shown.get("stream", 0)  # 0 stands for no word about it, None for nothing to wait for
    if count and stream is not None:
        device.synchronize((int(stream),) if stream else ())
    return Source(device, address, shape, kind, owner)


def _row_major(shape: Sequence[int], width: int) -> tuple[int, ...]:
    strides, step = [], width
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def put_source(channel: StoreChannel, name: str, source: Source, options: dict[str, int]) -> None:
    """Copies a tensor on its device, into memory of the daemon's."""
    metadata = tensor_metadata(source.type, source.shape)
    length = source.nbytes
    pieces = [(0, source.address, length)]
    _put(channel, name, ObjectType.TENSOR, metadata, source.device, pieces, length, options)


def put_batches(
    channel: StoreChannel, name: str, batches: Sequence[DeviceBatch], options: dict[str, int]
) -> None:
    """Copies batches of one schema on their device, into memory of the daemon's."""
    schema = batches[0].schema
    device = batches[0]._held().device
    metadata, pieces, at = [schema.serialize().to_pybytes()], [], 0
    for batch in batches:
        if not batch.schema.equals(schema) or batch._held().device is not device:
            raise DissociatedError(
                Code.INVALID_ARGUMENT,
                f"table not put: batches of several schemas or devices, name={name}",
            )
        lengths = [length for _, length in batch._buffers]
        places = list(aligned(lengths, ALIGNMENT))
        pieces += [
            (at + place, address, length)
            for place, (address, length) in zip(places, batch._buffers)
        ]
        metadata.append(_message(batch._message, places, lengths))
        at += places[-1]
    _put(channel, name, ObjectType.TABLE, b"".join(metadata), device, pieces, at, options)


def _message(message: IpcMessage, places: Sequence[int], lengths: Sequence[int]) -> bytes:
    pairs = [value for place, n in zip(places, lengths) for value in (place, n)]
    moved = message.flatbuffer
    if places[-1] or message.body_length:
        moved = bytes(message.relocated(u64s(len(pairs)).pack(*pairs), places[-1]))
    moved += bytes(-len(moved) % _EIGHT)
    return _PREFIX.pack(_CONTINUATION, len(moved)) + moved


def _put(
    channel: StoreChannel,
    name: str,
    kind: ObjectType,
    metadata: bytes,
    device: CudaDevice,
    pieces: Sequence[tuple[int, int, int]],
    length: int,
    options: dict[str, int],
) -> None:
    encoded = check_name(name)
    entries = [buffer_entry(INLINE, 0, len(metadata))]
    body = -(-length // _EIGHT) * _EIGHT
    if not body:
        _send(channel, encoded, kind, entries, metadata, options)
        return
    start_keeper()
    request = device_bytes(device.uuid)
    arena = channel.call(Op.ALLOCATE, a=body, payload=request)
    try:
        memory = channel.arenas.open(arena.a)
        base = memory.resolve(arena.b, body)
        memory.device.clear([(base + at, n) for at, n in _gaps(pieces, body)])
        memory.device.within([(base + to, at, n) for to, at, n in pieces])
    except BaseException:
        if channel.arenas.drop(arena.a):
            channel.say(Op.DROPPED, a=arena.a)
        raise
    entries.append(buffer_entry(DEVICE, arena.a << OFFSET_BITS | arena.b, body))
    _send(channel, encoded, kind, entries, metadata, options)


def _gaps(pieces: Sequence[tuple[int, int, int]], body: int) -> list[tuple[int, int]]:
    """What lies between the pieces and behind them, where old data may be."""
    gaps, at = [], 0
    for to, _, length in pieces:
        if length:
            gaps.append((at, to - at))
            at = to + length
    return [*gaps, (at, body - at)]


def _send(
    channel: StoreChannel,
    name: bytes,
    kind: ObjectType,
    entries: Sequence[bytes],
    metadata: bytes,
    options: dict[str, int],
) -> None:
    payload = b"".join(entries) + metadata
    channel.call(Op.PUT, name=name, kind=kind, b=len(entries), payload=payload, **options)
