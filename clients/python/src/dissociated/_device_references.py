"""Arrays in a GPU's memory that go to another process by name and claim: nothing is copied twice.

What a store has already is claimed as it lies; everything else is copied on the device, once, into
memory of the store's.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from typing import Any, Optional

from ._references import UNNAMED_SECONDS, store_at
from .errors import Code, DissociatedError
from .wire.store import ObjectType

DEFAULT_SECONDS = 600.0
"""How long a reference can be loaded, where nobody says how long."""
NOT_LENT = (Code.UNSUPPORTED, Code.RESOURCE_EXHAUSTED)
"""Why a store does not take what lies on a device, where others may know a way."""


def reduce_device(array: Any, path: str, timeout: float, framework: str) -> Any:
    """How an array on a device is pickled."""
    from ._device_store import DeviceTensor

    if isinstance(array, DeviceTensor):
        claimed = array.claim(timeout)
        if claimed is not None:
            return load_device, (*claimed, framework)
    store = store_at(path)
    name = f"references/{os.getpid()}/{uuid.uuid4().hex}"
    store.put(name, array, pin=True, ttl=UNNAMED_SECONDS)
    try:
        lease = store.lease(name)[2]
    finally:
        store.delete(name)
    high, low = lease.claim(timeout)
    return load_device, (path, high, low, framework)


def load_device(path: str, high: int, low: int, framework: str) -> Any:
    """The array of a reference, which can be loaded once, as its sender had it."""
    from ._device_store import read_device_object

    buffers, lease = store_at(path).take(high, low)
    if not lease.device:
        raise DissociatedError(Code.DATA_CORRUPT, "reference is of nothing in a device's memory")
    tensor = read_device_object("claimed", ObjectType.TENSOR, buffers, lease, like="device")
    if framework == "torch":
        return tensor.as_torch()
    if framework == "cupy":
        import cupy

        return cupy.asarray(tensor)
    if framework == "numba":
        from numba import cuda

        return cuda.as_cuda_array(tensor)
    return tensor


def device_reducers(path: str, threshold: int, timeout: float) -> dict[type, Callable[[Any], Any]]:
    """Reducers of the arrays of those libraries that are in use; torch has one of its own."""

    def reducer(framework: str, otherwise: Optional[Callable[[Any], Any]]) -> Callable[[Any], Any]:
        def reduce(array: Any) -> Any:
            if otherwise is not None and array.nbytes < threshold:
                return otherwise(array)
            return reduce_device(array, path, timeout, framework)

        return reduce

    found: dict[type, Callable[[Any], Any]] = {}
    cupy, numba = sys.modules.get("cupy"), sys.modules.get("numba.cuda.cudadrv.devicearray")
    if cupy is not None:
        found[cupy.ndarray] = reducer("cupy", lambda array: array.__reduce__())
    if numba is not None:
        found[numba.DeviceNDArray] = reducer("numba", None)
    return found
