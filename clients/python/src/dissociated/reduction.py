"""Arrays and tensors that go from process to process by reference instead of being copied.

>>> dissociated.init_reduction()                                    # doctest: +SKIP
... with multiprocessing.get_context("spawn").Pool() as pool:
...     pool.map(work, [array] * 8)
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections.abc import Callable
from multiprocessing import context
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, Union

import pyarrow as pa

from ._arrays import as_dense, torch_from, writable
from ._daemon import default_socket
from ._device_references import DEFAULT_SECONDS, NOT_LENT, device_reducers, reduce_device
from ._references import Reference, load, refer
from .errors import DissociatedError
from .store import Store

__all__ = ["dumps", "init_reduction", "loads"]

DEFAULT_THRESHOLD = 64 << 10
DEFAULT_TIMEOUT = DEFAULT_SECONDS


class _Settings(NamedTuple):
    path: str
    threshold: int
    timeout: float


def init_reduction(
    store: Union[Store, str, None] = None,
    *,
    threshold: int = DEFAULT_THRESHOLD,
    timeout: float = DEFAULT_TIMEOUT,
) -> None:
    """Lets arrays and tensors that are passed between processes travel by reference.

    From then on, all that ``multiprocessing`` pickles (arguments, results, queues, pipes; so also
    ``concurrent.futures`` and torch's DataLoader) carries references to the large arrays of numpy,
    CPU tensors of torch and buffers of pyarrow in it. What lies in a store is not copied; what does
    not is copied once, into the store. Processes that are spawned afterwards do the same.

    What arrives is read-only; a torch tensor arrives as a private view, whose changes stay where
    they are made. Tensors in torch's own shared memory, and those with gradients, travel as before.
    Arrays of cupy, numba and torch in a GPU's memory travel so, too, where the store lends device
    memory; torch sends its own way what the store does not take. Each reference holds its memory
    until it is loaded, until its time is over, or until the process that sent it ends: a result
    must be taken before its worker ends.

    Call it after torch, cupy and numba.cuda have been imported, where they are used.

    :param store: a store or the path of its socket; by default that of :func:`connect`
    :param threshold: bytes from which on an array travels so
    :param timeout: how many seconds a reference waits to be loaded
    """
    settings = _Settings(_path(store), threshold, timeout)
    for kind, reduce in _reducers(settings).items():
        ForkingPickler.register(kind, reduce)
    with_torch = "torch" in sys.modules
    for name in ("SpawnProcess", "ForkServerProcess"):
        if hasattr(context, name):
            reduce_process = _process_reducer(settings, with_torch)
            ForkingPickler.register(getattr(context, name), reduce_process)


def dumps(
    obj: Any,
    *,
    store: Union[Store, str, None] = None,
    threshold: int = DEFAULT_THRESHOLD,
    timeout: float = DEFAULT_TIMEOUT,
) -> bytes:
    """A pickle of an object, for one process of this host, once: its large arrays are references.

    :param store: a store or the path of its socket; by default that of :func:`connect`
    :param threshold: bytes from which on an array, a tensor or a buffer is a reference
    :param timeout: how many seconds it can be loaded
    """
    sink = io.BytesIO()
    pickler = pickle.Pickler(sink, protocol=5)
    reducers = _reducers(_Settings(_path(store), threshold, timeout))
    pickler.dispatch_table = {**copyreg.dispatch_table, **reducers}
    pickler.dump(obj)
    return sink.getvalue()


def loads(data: bytes) -> Any:
    """The object that :func:`dumps` was given. Like all unpickling, it runs what the data says."""
    return pickle.loads(data)


def _path(store: Union[Store, str, None]) -> str:
    if store is None:
        return default_socket()
    return store if isinstance(store, str) else store.path


# ---- what is sent


def _reducers(settings: _Settings) -> dict[type, Callable[[Any], Any]]:
    """How objects of which types are pickled."""

    def reduce_array(array: Any) -> Any:
        if array.nbytes < settings.threshold or array.dtype.hasobject:
            return array.__reduce__()
        array = _in_one_piece(array)
        base, start = _span(array)
        reference = refer(base, settings.path, settings.timeout)
        return _array, (reference, array.dtype, array.shape, array.strides, start)

    def reduce_buffer(buffer: Any) -> Any:
        if buffer.size < settings.threshold:
            return pa.py_buffer, (buffer.to_pybytes(),)
        return _buffer, (refer(buffer, settings.path, settings.timeout),)

    reducers: dict[type, Callable[[Any], Any]] = {
        pa.Buffer: reduce_buffer,
        pa.ResizableBuffer: reduce_buffer,
    }
    try:
        import numpy as np
    except ImportError:
        return reducers
    reducers[np.ndarray] = reduce_array
    torch = sys.modules.get("torch")
    if torch is not None:
        reducers[torch.Tensor] = _tensor_reducer(torch, settings)
    reducers.update(device_reducers(*settings))
    return reducers


def _in_one_piece(array: Any) -> Any:
    """The array, or a copy where its elements lie scattered over much more than they are."""
    import numpy as np

    low, high = _bounds(array)
    return array if high - low <= 2 * array.nbytes else np.ascontiguousarray(array)


def _bounds(array: Any) -> tuple[int, int]:
    """Distance of the first and of the end of the last byte from element zero."""
    low, high = 0, array.itemsize
    for count, stride in zip(array.shape, array.strides):
        if stride < 0:
            low += (count - 1) * stride
        else:
            high += (count - 1) * stride
    return low, high


def _span(array: Any) -> tuple[Any, int]:
    """All bytes between the first and the last of an array, and where element zero is in them."""
    low, high = _bounds(array)
    address = array.__array_interface__["data"][0] + low
    return pa.foreign_buffer(address, high - low, base=array), -low


def _tensor_reducer(torch: Any, settings: _Settings) -> Callable[[Any], Any]:
    from torch.multiprocessing.reductions import reduce_tensor

    def reduce(tensor: Any) -> Any:
        if tensor.device.type == "cuda" and not tensor.requires_grad:
            try:
                return reduce_device(tensor, settings.path, settings.timeout, "torch")
            except DissociatedError as e:
                if e.code not in NOT_LENT:
                    raise
                return reduce_tensor(tensor)  # torch has a way of its own
        ours = (
            tensor.device.type == "cpu"
            and tensor.layout is torch.strided
            and not tensor.requires_grad
            and not tensor.is_shared()
            and tensor.numel() * tensor.element_size() >= settings.threshold
        )
        dense = as_dense(tensor) if ours else None
        if dense is None:
            return reduce_tensor(tensor)
        import numpy as np

        flat = np.ascontiguousarray(dense.array).reshape(-1).view("u1")
        reference = refer(flat, settings.path, settings.timeout)
        return _tensor, (reference, str(tensor.dtype).partition(".")[2], tuple(tensor.shape))

    return reduce


def _process_reducer(settings: _Settings, with_torch: bool) -> Callable[[Any], Any]:
    def reduce(process: Any) -> Any:
        return _process, (type(process), settings, with_torch), process.__dict__

    return reduce


# ---- what arrives


def _array(
    reference: Reference, dtype: Any, shape: tuple[int, ...], strides: Any, start: int
) -> Any:
    import numpy as np

    return np.ndarray(shape, dtype, load(reference)[0], start, strides)


def _buffer(reference: Reference) -> pa.Buffer:
    return load(reference)[0]


def _tensor(reference: Reference, dtype: str, shape: tuple[int, ...]) -> Any:
    buffer, lease = load(reference)
    return torch_from(writable(buffer.address, buffer.size, lease), dtype, shape)


def _process(kind: Any, settings: _Settings, with_torch: bool) -> Any:
    """In a new process, before anything else of it is unpickled."""
    if with_torch:
        import torch.multiprocessing  # noqa: F401 its own reducers come first
    init_reduction(settings.path, threshold=settings.threshold, timeout=settings.timeout)
    return kind.__new__(kind)
