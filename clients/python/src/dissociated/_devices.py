"""What a client does with memory of GPUs."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Optional

from .errors import Code, DissociatedError

if TYPE_CHECKING:
    from ._device_reader import DeviceReader

_KINDS = ("cuda",)


class DeviceStreams(abc.ABC):
    """Streams and objects in a GPU's memory. Nothing of it is loaded before it is asked for."""

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
        return self.open_device(name)
