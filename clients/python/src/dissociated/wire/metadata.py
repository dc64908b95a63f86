"""The untagged messages of the metadata stream (specification, "Metadata Stream Sequence").

::

     0      1                    5
    +------+--------------------+----------------------------------+
    | type |  sequence number   |  IPC message flatbuffer (type 1) |
    +------+--------------------+----------------------------------+

An end-of-stream (type 0) is exactly the 5-byte prefix.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..errors import violation

PREFIX_LENGTH = 5
SEQUENCE_MASK = 0xFFFF_FFFF

_END_OF_STREAM = 0
_IPC_METADATA = 1
_PREFIX = struct.Struct("<BI")


class MetadataMessage(NamedTuple):
    """One message of the metadata stream; ``flatbuffer`` is empty at the end of the stream."""

    end_of_stream: bool
    sequence: int
    flatbuffer: bytes

    @classmethod
    def parse(cls, message: bytes) -> MetadataMessage:
        """Reads a whole message, or raises PROTOCOL_VIOLATION."""
        length = len(message)
        if length < PREFIX_LENGTH:
            raise violation(
                f"metadata message refused: shorter than its 5-byte prefix, length={length}"
            )
        kind, sequence = _PREFIX.unpack_from(message)
        if kind == _IPC_METADATA:
            if length == PREFIX_LENGTH:
                raise violation(
                    "metadata message refused: no flatbuffer follows the prefix, "
                    f"sequence={sequence}"
                )
            return cls(False, sequence, message[PREFIX_LENGTH:])
        if kind != _END_OF_STREAM:
            raise violation(f"metadata message refused: unknown type, type={kind}")
        if length != PREFIX_LENGTH:
            raise violation(f"end-of-stream refused: must be exactly 5 bytes, length={length}")
        return cls(True, sequence, b"")


def metadata_message(sequence: int, flatbuffer: bytes) -> bytes:
    """The message that carries an IPC flatbuffer."""
    return _PREFIX.pack(_IPC_METADATA, sequence & SEQUENCE_MASK) + flatbuffer


def end_of_stream(sequence: int) -> bytes:
    """The whole end-of-stream message."""
    return _PREFIX.pack(_END_OF_STREAM, sequence & SEQUENCE_MASK)


def sequence_distance(reference: int, sequence: int) -> int:
    """How far ``sequence`` lies ahead of ``reference`` in serial order; negative when behind."""
    ahead = (sequence - reference) & SEQUENCE_MASK
    return ahead if ahead < 1 << 31 else ahead - (1 << 32)
