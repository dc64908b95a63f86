"""Tags, buffer lists and free lists (specification, "Data Stream Sequence").

A tag::

     63        56 55                     32 31                               0
    +------------+-------------------------+----------------------------------+
    | body type  |  reserved, must be 0    |  sequence number                 |
    +------------+-------------------------+----------------------------------+

The body of a type 1 message::

     0            8           16            24          32
    +------------+-----------+-------------+-----------+------ - - -
    | total u64  | count u64 | address u64 | length u64| next pair
    +------------+-----------+-------------+-----------+------ - - -

A free list is one or more addresses, each a ``u64``; an address given twice is freed twice.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import violation

PACKED = 0
"""The body is the packed IPC body itself."""
BY_REFERENCE = 1
"""The body is a :class:`BufferList`."""
MAX_BUFFERS = 1 << 24
"""No batch has more buffers than this; a list that says so is refused before it is read."""
MAX_FREES = 4096
"""Most addresses in one free list that this package sends; it reads any number."""

_RESERVED_MASK = 0x00FF_FFFF_0000_0000
_TYPE_SHIFT = 56
_LIST_HEADER = struct.Struct("<QQ")
_COUNT = struct.Struct("<Q")
_PAIR_LENGTH = 16
_MAX_SIGNED = (1 << 63) - 1
_structs: dict[int, struct.Struct] = {}


def u64s(count: int) -> struct.Struct:
    """The layout of ``count`` unsigned 64-bit integers, kept for the small counts that recur."""
    known = _structs.get(count)
    if known is None:
        known = struct.Struct(f"<{count}Q")
        if count <= 4096:
            _structs[count] = known
    return known


def body_tag(kind: int, sequence: int) -> int:
    """The tag of the body of message ``sequence``."""
    return kind << _TYPE_SHIFT | sequence & 0xFFFF_FFFF


def body_sequence(tag: int) -> int:
    """The sequence number in ``tag``."""
    return tag & 0xFFFF_FFFF


def body_type(tag: int) -> int:
    """PACKED or BY_REFERENCE; refuses reserved bits and unknown types."""
    if tag & _RESERVED_MASK:
        raise violation(f"body refused: reserved tag bits 32-55 are set, tag={tag:#x}")
    kind = tag >> _TYPE_SHIFT
    if kind > BY_REFERENCE:
        raise violation(f"body refused: unknown body type, type={kind} tag={tag:#x}")
    return kind


class BufferList(NamedTuple):
    """Where each buffer of a batch lies; one address and one length per buffer."""

    total: int
    addresses: tuple[int, ...]
    lengths: tuple[int, ...]

    def encode(self) -> bytes:
        """The encoded form."""
        pairs = [value for pair in zip(self.addresses, self.lengths) for value in pair]
        count = len(self.addresses)
        return u64s(2 + 2 * count).pack(self.total, count, *pairs)

    @classmethod
    def parse(cls, message: bytes) -> BufferList:
        """Reads a whole list. Addresses are not checked against any memory here."""
        return cls(*unpack_buffer_list(message))


def unpack_buffer_list(message: bytes) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """What :meth:`BufferList.parse` gives, without the object."""
    size = len(message)
    if size < _LIST_HEADER.size:
        raise violation(f"buffer list refused: shorter than its 16-byte header, length={size}")
    count = (size - _LIST_HEADER.size) // _PAIR_LENGTH
    claimed = _COUNT.unpack_from(message, 8)[0]
    if claimed != count or claimed > MAX_BUFFERS or size % _PAIR_LENGTH:
        raise violation(
            f"buffer list refused: count does not match length, count={claimed} length={size}"
        )
    values = (_structs.get(2 + 2 * count) or u64s(2 + 2 * count)).unpack(message)
    total, lengths = values[0], values[3::2]
    if not sum(lengths) <= total <= _MAX_SIGNED:
        _refuse(total, lengths)
    return total, values[2::2], lengths


def _refuse(total: int, lengths: Sequence[int]) -> None:
    """Says what is wrong with a list whose total does not cover its buffers."""
    summed = 0
    for i, length in enumerate(lengths):
        summed += length
        if summed > _MAX_SIGNED:
            raise violation(f"buffer list refused: length out of range, buffer={i} length={length}")
    raise violation(
        "buffer list refused: total is less than the sum of the buffers, "
        f"total={total} sum={summed}"
    )


def encode_free_list(addresses: Sequence[int]) -> bytes:
    """The encoded form of a free list."""
    return u64s(len(addresses)).pack(*addresses)


def parse_free_list(message: bytes) -> tuple[int, ...]:
    """Reads a whole free list; refuses one that is empty or no whole number of addresses."""
    size = len(message)
    if size == 0 or size % 8:
        raise violation(f"free_data refused: not a whole number of addresses, length={size}")
    return u64s(size // 8).unpack(message)
