"""Which memory one client holds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Optional

from ._memory import Block

_PATIENCE_SECONDS = 0.1


class _BlockLease:
    """A block that was lent: it comes back when all its addresses have been freed."""

    __slots__ = ("block", "remaining")

    def __init__(self, block: Block, remaining: int) -> None:
        self.block = block
        self.remaining = remaining


class LeaseTable:
    """The leases of one data connection. Thread-safe.

    Resident memory is only counted; blocks come back through ``release`` and free their credit.
    """

    def __init__(self, release: Callable[[Block], None], limit: int) -> None:
        self._release = release
        self._limit = limit
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._resident: Counter[int] = Counter()
        self._blocks: dict[int, list[_BlockLease]] = {}
        self._leased = 0
        self._expects_frees = True
        self._closed = False
        self.refused = 0
        """Addresses that were to be freed and were not leased."""

    def lend_resident(self, addresses: tuple[int, ...]) -> bool:
        """Counts leases on memory that stays anyway; False when the client is gone."""
        with self._lock:
            if not self._closed:
                self._resident.update(addresses)
            return not self._closed

    def admits(self, size: int) -> bool:
        """Whether a block of that size may be lent; one always may.

        Waits while the client keeps freeing. When nothing comes back for a while it evidently
        means to keep what it has, until it frees something after all.
        """
        with self._lock:
            while not self._closed and self._leased and self._leased + size > self._limit:
                before = self._leased
                if not self._expects_frees:
                    return False
                self._freed.wait(_PATIENCE_SECONDS)
                self._expects_frees = self._leased < before
            return True

    def lend(self, block: Block, addresses: tuple[int, ...]) -> bool:
        """Lends a block; False when the client is gone, and the block is still the caller's."""
        lease = _BlockLease(block, len(addresses))
        with self._lock:
            if self._closed:
                return False
            self._leased += block.size
            for address in addresses:
                self._blocks.setdefault(address, []).append(lease)
            return True

    def free(self, addresses: tuple[int, ...]) -> None:
        """Ends one lease for each occurrence of an address; unknown ones are counted."""
        resident = self._resident
        done: list[Block] = []
        with self._lock:
            for address in addresses:
                count = resident.get(address)
                if count is not None:
                    if count == 1:
                        del resident[address]
                    else:
                        resident[address] = count - 1
                    continue
                block = self._free_block(address)
                if block is not None:
                    done.append(block)
            if done:
                self._expects_frees = True
                self._freed.notify_all()
        for block in done:
            self._release(block)

    def _free_block(self, address: int) -> Optional[Block]:
        leases = self._blocks.get(address)
        if not leases:
            self.refused += 1
            return None
        lease = leases.pop()
        if not leases:
            del self._blocks[address]
        lease.remaining -= 1
        if lease.remaining:
            return None
        self._leased -= lease.block.size
        return lease.block

    def close(self) -> None:
        """The client is gone: everything it held comes back."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            blocks = {id(x): x.block for leases in self._blocks.values() for x in leases}
            self._blocks.clear()
            self._resident.clear()
            self._leased = 0
            self._freed.notify_all()
        for block in blocks.values():
            self._release(block)

    @property
    def count(self) -> int:
        """Leases that have not ended."""
        with self._lock:
            return sum(self._resident.values()) + sum(map(len, self._blocks.values()))

    @property
    def bytes(self) -> int:
        """Bytes that the leases keep: whole blocks. Resident data stays anyway."""
        return self._leased
