"""The one exception of this package."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """The closed list of causes. The numbers travel in error frames and never change."""

    INVALID_ARGUMENT = 1
    """The caller asked for something that makes no sense: a bad name, URI or option."""
    NOT_FOUND = 2
    """No stream, name or file of that name exists."""
    UNAUTHENTICATED = 3
    """The peer did not say who it is, or its token is unknown, used or expired."""
    PERMISSION_DENIED = 4
    """The peer is known and may not do this."""
    UNAVAILABLE = 5
    """The peer cannot be reached, has closed the connection or has died."""
    TIMED_OUT = 6
    """The peer is connected but has been silent for too long."""
    RESOURCE_EXHAUSTED = 7
    """A limit on memory, leases, descriptors or connections is reached."""
    PROTOCOL_VIOLATION = 8
    """The peer sent bytes that break the protocol."""
    DATA_CORRUPT = 9
    """The data itself is truncated or is not Arrow."""
    UNSUPPORTED = 10
    """Well-formed, but not something that this end can do."""
    INTERNAL = 11
    """A failure of the producer or a defect of this software."""
    CANCELLED = 12
    """One of the two ends stopped the stream on purpose."""
    ALREADY_EXISTS = 13
    """Something of that name exists, and names are written once."""

    @classmethod
    def of(cls, number: int) -> Code:
        """The code with that number; INTERNAL when a newer peer sends one not listed here."""
        try:
            return cls(number)
        except ValueError:
            return cls.INTERNAL


class DissociatedError(Exception):
    """What failed, since what, with the values that explain it as ``key=value``."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple:
        return type(self), (self.code, self.message)


def violation(message: str) -> DissociatedError:
    """The peer sent bytes that break the protocol."""
    return DissociatedError(Code.PROTOCOL_VIOLATION, message)
