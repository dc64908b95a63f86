"""What travels in a Flight DoExchange call that carries a stream's metadata.

The descriptor's command is ``"DIPC" | u8 version | u8 mode | ticket``. The server's first
``app_metadata`` is a 16-byte token and its locations, separated by newlines. In mode FLIGHT each
later one is any number of ``u32 length | metadata message``; a length of 0 is a heartbeat.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple, Optional

from ..errors import Code, DissociatedError, violation
from .metadata import PREFIX_LENGTH

FLIGHT = 0
"""Metadata travels in this call."""
INLINE = 1
"""Metadata travels on the data connection; the call only stays open as long as the stream."""
TOKEN_LENGTH = 16
HEARTBEAT = bytes(4)
"""A whole ``app_metadata`` that says nothing but that its sender lives."""

_MAGIC = b"DIPC"
_VERSION = 1
_COMMAND = struct.Struct("<4sBB")
_LENGTH = struct.Struct("<I")


class ExchangeCommand(NamedTuple):
    """A request for a stream whose metadata is controlled by a Flight call."""

    mode: int
    ticket: bytes

    def encode(self) -> bytes:
        """The descriptor's command."""
        return _COMMAND.pack(_MAGIC, _VERSION, self.mode) + self.ticket

    @classmethod
    def parse(cls, command: bytes) -> Optional[ExchangeCommand]:
        """Reads a command; None when it is somebody else's."""
        if not command.startswith(_MAGIC):
            return None
        if len(command) < _COMMAND.size:
            raise violation(f"exchange command refused: too short, length={len(command)}")
        _, version, mode = _COMMAND.unpack_from(command)
        if version != _VERSION:
            raise DissociatedError(
                Code.UNSUPPORTED, f"exchange command refused: unknown version, version={version}"
            )
        if mode not in (FLIGHT, INLINE):
            raise violation(f"exchange command refused: unknown mode, mode={mode}")
        return cls(mode, command[_COMMAND.size :])


class ExchangeOffer(NamedTuple):
    """The server's answer: the token to claim the stream with, and where."""

    token: bytes
    locations: tuple[str, ...]

    def encode(self) -> bytes:
        """The first ``app_metadata`` of the call."""
        return self.token + "\n".join(self.locations).encode("utf-8")

    @classmethod
    def parse(cls, message: bytes) -> ExchangeOffer:
        """Reads the first ``app_metadata`` of the call."""
        if len(message) < TOKEN_LENGTH:
            raise violation(f"stream offer refused: shorter than a token, length={len(message)}")
        try:
            text = message[TOKEN_LENGTH:].decode("utf-8")
        except UnicodeDecodeError as e:
            raise violation(f"stream offer refused: locations are not UTF-8: {e}") from e
        locations = tuple(text.split("\n"))
        if not all(locations):
            raise violation("stream offer refused: an empty location")
        return cls(message[:TOKEN_LENGTH], locations)


def frame_metadata(messages: Iterable[bytes]) -> bytes:
    """One ``app_metadata`` with all these metadata messages."""
    return b"".join(part for m in messages for part in (_LENGTH.pack(len(m)), m))


def split_metadata(message: bytes) -> list[bytes]:
    """The metadata messages in one ``app_metadata``; none in a heartbeat."""
    messages = []
    position, end = 0, len(message)
    while position < end:
        if end - position < _LENGTH.size:
            raise violation(f"metadata refused: cut length field, left={end - position}")
        (length,) = _LENGTH.unpack_from(message, position)
        position += _LENGTH.size
        if length == 0:
            continue  # a heartbeat
        if not PREFIX_LENGTH <= length <= end - position:
            raise violation(
                f"metadata refused: length out of range, length={length} left={end - position}"
            )
        messages.append(message[position : position + length])
        position += length
    return messages
