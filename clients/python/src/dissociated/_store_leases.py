"""Leases on objects of a store, and which of them memory lies under."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Optional

from ._segments import Segment

if TYPE_CHECKING:
    from ._store_channel import StoreChannel

_WORTH_FINDING = 4 << 10  # bytes of a buffer from which on its lease can be found by address


class Lease:
    """One lease on an object; ends when the last buffer over it goes."""

    __slots__ = (
        "__weakref__",
        "_channel",
        "_number",
        "_segments",
        "device",
        "kind",
        "numbers",
        "places",
    )

    def __init__(self, channel: StoreChannel, number: int, kind: int, numbers: list[int]) -> None:
        """
        :param kind: what the daemon says that the object's type is
        :param numbers: the segment of each buffer that has bytes, or minus its arena
        """
        self._channel = channel
        self._number = number
        self._segments: list[Segment] = []
        self.kind = kind
        self.numbers = numbers
        self.places: list[tuple[int, int]] = []
        self.device: dict[int, tuple[int, int, int]] = {}
        """Of the buffers that lie on a device, by their number: arena, offset and length."""

    def place(
        self,
        places: list[tuple[int, int]],
        segments: list[Segment],
        device: dict[int, tuple[int, int, int]],
    ) -> None:
        """Says where the buffers are: address and length of each, in segments that stay mapped, or
        on a device.
        """
        self.places = places
        self._segments = segments
        self.device = device
        for _, length in places:
            if length >= _WORTH_FINDING:
                _large[id(self)] = self
                break

    @property
    def channel(self) -> StoreChannel:
        """The connection that it was had by."""
        return self._channel

    @property
    def path(self) -> str:
        """The socket of the store that it is on."""
        return self._channel.path

    def claim(self, timeout: float) -> tuple[int, int]:
        """A token by which another process can have this object, once."""
        return self._channel.claim(self._number, timeout)

    @property
    def is_usable(self) -> bool:
        """Whether it is a lease of this process's, and lasts."""
        return self._channel.is_usable

    def covers(self, address: int, length: int) -> bool:
        """Whether memory is of this lease, so that it does not change while that lasts."""
        return any(
            start <= address and address + length <= start + size for start, size in self.places
        )

    def __del__(self) -> None:
        try:
            self._segments = []
            self._channel.release(self._number, self.numbers)
        except (AttributeError, TypeError):
            pass  # at the interpreter's exit, what release() needs may be gone already


# By id: unlike a set, it can be read while another thread adds to it.
_large: weakref.WeakValueDictionary[int, Lease] = weakref.WeakValueDictionary()


def lease_at(address: int, length: int) -> Optional[tuple[Lease, int, int]]:
    """The lease of this process's under which memory lies, in which of its buffers, and where."""
    if length < _WORTH_FINDING:
        return None
    for reference in _large.valuerefs():
        lease = reference()
        if lease is None:
            continue
        for index, (start, size) in enumerate(lease.places):
            if start <= address and address + length <= start + size and lease.is_usable:
                return lease, index, address - start
    return None
