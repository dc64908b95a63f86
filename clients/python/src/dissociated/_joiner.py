"""Bringing metadata and bodies together by sequence number, whatever order they arrive in."""

from __future__ import annotations

from typing import Any, Optional

from .errors import violation
from .wire import (
    PACKED,
    PREFIX_LENGTH,
    IpcMessage,
    MessageParser,
    MetadataMessage,
    body_sequence,
    body_type,
    sequence_distance,
)

WINDOW = 1 << 16
"""How far ahead of the next message another may arrive."""
MAX_EARLY = 1 << 30
"""Most bytes of packed bodies that may be ahead of their metadata."""

_MASK = 0xFFFF_FFFF
_IPC_METADATA = 1
_UNUSUAL_TAG = 0xFEFF_FFFF_0000_0000  # any bit that is neither of a known type nor the sequence


class Joiner:
    """Gives out the messages of one stream in order.

    The stream is complete only when its end has come, every sequence number below the end has come
    and no body is pending. Not thread-safe.
    """

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._end: Optional[int] = None
        self._messages: dict[int, IpcMessage] = {}
        self._bodies: dict[int, tuple[int, Any]] = {}
        self._early = 0
        self._parser = MessageParser()

    def metadata(self, raw: bytes) -> None:
        """A message of the metadata stream has come."""
        if len(raw) > PREFIX_LENGTH and raw[0] == _IPC_METADATA:
            sequence = int.from_bytes(raw[1:PREFIX_LENGTH], "little")
        else:  # anything but the usual
            sequence = MetadataMessage.parse(raw).sequence
            self._finish(sequence)
            return
        if (sequence - self._next) & _MASK >= WINDOW or self._end is not None:
            self._check("metadata", sequence)
        if sequence in self._messages:
            raise violation(f"metadata refused: came twice, sequence={sequence}")
        message = self._parser.parse(raw[PREFIX_LENGTH:])
        if sequence in self._bodies:
            self._join_early(sequence, message)
        self._messages[sequence] = message

    def body(self, tag: int, payload: Any) -> None:
        """The body of a message has come."""
        kind = tag >> 56 if not tag & _UNUSUAL_TAG else body_type(tag)
        sequence = tag & _MASK
        if (sequence - self._next) & _MASK >= WINDOW or self._end is not None:
            self._check("body", sequence)
        if sequence in self._bodies:
            raise violation(f"body refused: came twice, sequence={sequence}")
        message = self._messages.get(sequence)
        if message is None:
            if kind == PACKED:
                self.expected_body(tag, len(payload))
                self._early += len(payload)
        elif not message.has_body:
            raise violation(f"body refused: the message has none, sequence={sequence}")
        self._bodies[sequence] = (kind, payload)

    def _join_early(self, sequence: int, message: IpcMessage) -> None:
        if not message.has_body:
            raise violation(
                f"message refused: a body came for metadata that has none, sequence={sequence}"
            )
        kind, payload = self._bodies[sequence]
        if kind == PACKED:
            self._early -= len(payload)

    def _check(self, what: str, sequence: int) -> None:
        ahead = sequence_distance(self._next, sequence)
        if ahead < 0:
            raise violation(f"{what} refused: came twice, sequence={sequence}")
        if ahead >= WINDOW or (
            self._end is not None and sequence_distance(sequence, self._end) <= 0
        ):
            raise violation(
                f"{what} refused: sequence out of range, sequence={sequence} {self.missing()}"
            )

    def _finish(self, sequence: int) -> None:
        if self._end is not None:
            raise violation(f"end-of-stream refused: came twice, sequence={sequence}")
        ahead = sequence_distance(self._next, sequence)
        if not 0 <= ahead <= WINDOW:
            raise violation(
                "end-of-stream refused: its sequence does not fit the messages before it, "
                f"sequence={sequence} next={self._next}"
            )
        later = [s for s in (*self._messages, *self._bodies) if sequence_distance(sequence, s) >= 0]
        if later:
            raise violation(
                "end-of-stream refused: messages with higher numbers have come, "
                f"sequence={sequence} later={later[0]}"
            )
        self._end = sequence

    def next(self) -> Optional[tuple[IpcMessage, Optional[tuple[int, Any]]]]:
        """The next message in order with its body, or None while it is not complete."""
        sequence = self._next
        message = self._messages.get(sequence)
        if message is None:
            return None
        body = None
        if message.has_body:
            body = self._bodies.pop(sequence, None)
            if body is None:
                return None
        del self._messages[sequence]
        self._next = (sequence + 1) & _MASK
        return message, body

    @property
    def is_complete(self) -> bool:
        """Whether everything has come and been given out."""
        return self._end is not None and self._next == self._end and not self._bodies

    @property
    def lacks_end(self) -> bool:
        """Whether the end-of-stream has not come, so that metadata is still missing."""
        return self._end is None

    def missing(self) -> str:
        """What is missing, for the text of an error."""
        end = "not seen" if self._end is None else self._end
        pending = len(self._messages.keys() | self._bodies.keys())
        return f"next={self._next} pending={pending} end={end}"

    def expected_body(self, tag: int, length: int) -> None:
        """Refuses the length of a packed body: other than its metadata says, or too early."""
        message = self._messages.get(body_sequence(tag))
        if message is None and self._early + length > MAX_EARLY:
            raise violation(f"body refused: too much without metadata, length={length}")
        if message is not None and length != message.body_length:
            raise violation(
                "body refused: its length is not the metadata's, "
                f"length={length} expected={message.body_length}"
            )

    def clear(self) -> None:
        """Forgets everything that still waits."""
        self._messages.clear()
        self._bodies.clear()
