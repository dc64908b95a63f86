"""Which arrays a store keeps as tensors, and how they come back.

A tensor of Arrow's has elements of a number type. What numpy and torch know beyond that has a name
for the type beside it, and elements of the same bytes.
"""

from __future__ import annotations

import ctypes
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import pyarrow as pa

from ._mapping import PrivateView
from .errors import Code, DissociatedError

MOST_ELEMENTS = (1 << 31) - 1  # of a fixed-size list
_PRIVATE_FROM = 64 << 10  # bytes; less is copied sooner than mapped
WIDTHS = {1: "uint8", 2: "uint16"}
_DATES = re.compile(r"(datetime64|timedelta64)(\[\d*[A-Za-z]+\])?")
_BY_NUMPY_PROTOCOL = ("tensorflow", "jax", "jaxlib")

NUMPY, TORCH = "numpy", "torch"


class TensorType(NamedTuple):
    """What a tensor's elements are, and whose tensor it is."""

    element: pa.DataType
    """As Arrow sees them."""
    dtype: str = ""
    """The name of their type where that is more than Arrow's."""
    framework: str = NUMPY

    @property
    def per_element(self) -> int:
        """How many of Arrow's elements make one: a complex number is two floats."""
        return 2 if self.dtype.startswith("complex") else 1


class Dense(NamedTuple):
    """An array on its way into a store: any strides, and bytes that can be copied as they are."""

    type: TensorType
    array: Any


def numpy_type(dtype: Any) -> Optional[TensorType]:
    """How elements of that numpy type are kept; None when they are not numbers."""
    if not dtype.isnative or dtype.hasobject:
        return None
    if dtype.kind in "iuf" and dtype.itemsize in (1, 2, 4, 8):
        return TensorType(pa.from_numpy_dtype(dtype))
    if dtype.kind == "b":
        return TensorType(pa.uint8(), "bool")
    if dtype.kind in "mM":
        return TensorType(pa.int64(), str(dtype))
    if dtype.kind == "c" and dtype.itemsize in (8, 16):
        return TensorType(pa.float32() if dtype.itemsize == 8 else pa.float64(), dtype.name)
    if dtype.type.__module__ == "ml_dtypes" and dtype.itemsize in WIDTHS:
        return TensorType(pa.type_for_alias(WIDTHS[dtype.itemsize]), dtype.name)
    return None


def as_dense(obj: Any, insist: bool = False) -> Optional[Dense]:
    """An object as an array of numbers; None when it is none.

    :param insist: take everything that numpy can make an array of
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        return _torch_dense(torch, obj)
    np: Any = sys.modules.get("numpy")
    if insist or type(obj).__module__.partition(".")[0] in _BY_NUMPY_PROTOCOL:
        import numpy as np

        if insist or hasattr(obj, "__array__"):
            obj = np.asarray(obj)
    if np is None or type(obj) not in (np.ndarray, np.memmap):
        return None
    kind = numpy_type(obj.dtype)
    if kind is None or obj.size * kind.per_element > MOST_ELEMENTS:
        return None
    return Dense(kind, obj)


def _torch_dense(torch: Any, tensor: Any) -> Optional[Dense]:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise DissociatedError(
            Code.UNSUPPORTED,
            f"tensor not put: only dense ones are, layout={tensor.layout} dtype={tensor.dtype}",
        )
    if tensor.numel() > MOST_ELEMENTS // 2:
        return None
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu()
    name = str(tensor.dtype).partition(".")[2]
    try:
        array = tensor.numpy()
        kind = numpy_type(array.dtype)
        if kind is not None:
            return Dense(kind._replace(framework=TORCH), array)
    except TypeError:
        pass  # numpy has no such type
    if tensor.element_size() not in WIDTHS:
        raise DissociatedError(Code.UNSUPPORTED, f"no tensors of that type, dtype={tensor.dtype}")
    width = WIDTHS[tensor.element_size()]
    array = tensor.view(torch.uint8 if width == "uint8" else torch.int16).numpy().view(width)
    return Dense(TensorType(pa.type_for_alias(width), name, TORCH), array)


# ---- back


def to_numpy(values: pa.Array, shape: Sequence[int], dtype: str) -> Any:
    """The elements as a read-only array over their memory."""
    array = values.to_numpy(zero_copy_only=True)
    if dtype:
        array = array.view(_numpy_dtype(dtype, array.dtype))
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _numpy_dtype(name: str, stored: Any) -> Any:
    import numpy as np

    if name in ("bool", "complex64", "complex128") or _DATES.fullmatch(name):
        try:
            dtype = np.dtype(name)
        except TypeError as e:
            raise _corrupt_type(name) from e
    else:
        dtype = _extension_dtype(name)
    kind = numpy_type(dtype)
    if kind is None or kind.element.to_pandas_dtype() is not stored.type:
        raise _corrupt_type(name)
    return dtype


def _extension_dtype(name: str) -> Any:
    try:
        import ml_dtypes
        import numpy as np
    except ImportError as e:
        raise DissociatedError(
            Code.UNSUPPORTED, f"no such type in numpy, and ml_dtypes is not there, dtype={name}"
        ) from e
    found = getattr(ml_dtypes, name, None)
    if not isinstance(found, type) or not issubclass(found, np.generic):
        raise _corrupt_type(name)
    return np.dtype(found)


def _corrupt_type(name: str) -> DissociatedError:
    return DissociatedError(
        Code.DATA_CORRUPT, f"not a tensor: type of its elements, dtype={name!r}"
    )


def to_torch(values: pa.Array, shape: Sequence[int], dtype: str, lease: Any) -> Any:
    """The elements as a tensor whose changes nobody else sees.

    :param lease: what the elements lie under
    """
    name = dtype or str(values.type)
    name = {"double": "float64", "float": "float32", "halffloat": "float16"}.get(name, name)
    width = values.type.bit_width // 8
    if not len(values):
        return torch_from(b"", name, shape)
    address = values.buffers()[1].address + values.offset * width
    return torch_from(writable(address, len(values) * width, lease), name, shape)


def torch_from(memory: Any, dtype: str, shape: Sequence[int]) -> Any:
    """A tensor over writable memory of exactly its size."""
    import torch

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise DissociatedError(Code.UNSUPPORTED, f"no such type in torch, dtype={dtype}")
    length = memoryview(memory).nbytes
    if kind.itemsize * math.prod(shape) != length:
        raise DissociatedError(
            Code.DATA_CORRUPT,
            f"not a tensor: another size, dtype={dtype} shape={list(shape)} bytes={length}",
        )
    if not length:
        return torch.empty(tuple(shape), dtype=kind)
    return torch.frombuffer(memory, dtype=kind).reshape(tuple(shape))


def writable(address: int, length: int, lease: Optional[Any]) -> Any:
    """Memory of a lease as if it were this process's own: what is written stays here.

    A view where that costs less than a copy, and the lease lasts as long as it does.
    """
    if lease is not None and length >= _PRIVATE_FROM and lease.covers(address, length):
        try:
            return PrivateView(address, length, lease).buffer()
        except OSError:
            pass  # an old kernel, or no more mappings
    return bytearray(ctypes.string_at(address, length))
