"""Python objects as pickles whose large parts lie outside of them."""

from __future__ import annotations

import io
import pickle
import sys
import threading
from collections.abc import Sequence
from typing import Any, Optional

import pyarrow as pa

from ._arrays import as_dense, torch_from, writable

_PROTOCOL = 5
_loading = threading.local()


class _TorchPickler(pickle.Pickler):
    """Torch itself would copy its tensors into the pickle."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is not sys.modules["torch"].Tensor or obj.layout is not _strided():
            return NotImplemented
        dense = as_dense(obj)
        if dense is None:
            return NotImplemented
        import numpy as np

        array = np.ascontiguousarray(dense.array)
        name = str(obj.dtype).partition(".")[2]
        memory = pickle.PickleBuffer(array.reshape(-1).view(np.uint8))
        return _tensor, (memory, name, tuple(obj.shape), obj.requires_grad)


def _strided() -> Any:
    return sys.modules["torch"].strided


def dump_parts(obj: Any) -> list[Any]:
    """The pickle of an object, and its out-of-band buffers."""
    parts: list[Any] = [b""]
    try:
        parts[0] = _dumps(obj, lambda buffer: parts.append(buffer.raw()))
        return parts
    except BufferError:  # an out-of-band buffer that does not lie in one piece
        return [_dumps(obj, None)]


def _dumps(obj: Any, callback: Any) -> bytes:
    if "torch" not in sys.modules:
        return pickle.dumps(obj, protocol=_PROTOCOL, buffer_callback=callback)
    sink = io.BytesIO()
    _TorchPickler(sink, protocol=_PROTOCOL, buffer_callback=callback).dump(obj)
    return sink.getvalue()


def load_parts(parts: Sequence[Any], lease: Optional[Any] = None) -> Any:
    """The object again.

    :param lease: what the parts lie under, so that tensors can be private views of it
    """
    outer, _loading.lease = getattr(_loading, "lease", None), lease
    try:
        return pickle.loads(parts[0], buffers=parts[1:])
    finally:
        _loading.lease = outer


def _tensor(memory: Any, dtype: str, shape: tuple[int, ...], requires_grad: bool) -> Any:
    buffer = pa.py_buffer(memory)
    owned: Any = memory
    if not isinstance(memory, bytearray) and buffer.size:
        lease = getattr(_loading, "lease", None)
        owned = writable(buffer.address, buffer.size, lease)
    tensor = torch_from(owned, dtype, shape)
    return tensor.requires_grad_() if requires_grad else tensor
