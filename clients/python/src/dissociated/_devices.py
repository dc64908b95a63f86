"""What clients do with memory of GPUs. Nothing of CUDA is loaded before it is asked for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Optional

from .errors import Code, DissociatedError

if TYPE_CHECKING:
    from ._device_reader import DeviceReader

_KINDS = ("cuda",)
_INTERFACE = "__cuda_array_interface__"


class DeviceStreams:
    """Streams and objects in a GPU's memory."""

    def open_device(self, what: Any) -> DeviceReader:
        """Opens what :meth:`open` does in a GPU's memory: in place where the server shows it there,
        and otherwise copied there, of which :attr:`DeviceReader.fallback_reason` tells.

        UNSUPPORTED where this process has no CUDA; nothing is asked of the server then.
        """
        from ._device_open import open_device

        return open_device(self, what)

    def _get_on(self, device: str, name: str, timeout: Optional[float]) -> Any:
        if device not in _KINDS:
            raise DissociatedError(
                Code.INVALID_ARGUMENT, f"no such kind of device, device={device}"
            )
        from ._device_open import get_device

        return get_device(self, name, timeout)


def is_on_device(obj: Any) -> bool:
    """Whether an object lies in a GPU's memory, by what it says of itself."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        return bool(obj.device.type == "cuda")
    batches = sys.modules.get("dissociated._device_batch")
    if batches is not None and isinstance(obj, (batches.DeviceBatch, list)):
        items = obj if isinstance(obj, list) else [obj]
        return bool(items) and all(isinstance(item, batches.DeviceBatch) for item in items)
    return not isinstance(obj, type) and hasattr(obj, _INTERFACE)


def put_on_device(channel: Any, name: str, obj: Any, options: dict[str, int]) -> bool:
    """Puts what lies in a GPU's memory into memory of the daemon's there; false for all else."""
    if not is_on_device(obj):
        return False
    from ._device_put import put_batches, put_source, source_of

    if hasattr(obj, _INTERFACE):
        source = source_of(obj)
        assert source is not None
        put_source(channel, name, source, options)
    else:
        put_batches(channel, name, obj if isinstance(obj, list) else [obj], options)
    return True


def require_on_host(name: str, lease: Any) -> None:
    """Refuses the bare buffers of what lies on a device: the processor cannot read them."""
    if lease.device:
        raise DissociatedError(
            Code.UNSUPPORTED, f"object lies in the memory of a device, get it instead, name={name}"
        )
