"""Names of a store that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Optional

from ._store_channel import StoreChannel
from .errors import Code, DissociatedError
from .wire.store import GONE, ObjectType, Op


class Event(NamedTuple):
    """A name that appeared, was replaced, or went."""

    name: str
    type: ObjectType
    gone: bool


class Events(Iterator[Event]):
    """The events of a subscription, in order, over a connection of its own.

    Iterating waits for each and ends when this is closed. For one thread at a time; :meth:`close`
    is for any.
    """

    def __init__(self, path: str, prefix: str) -> None:
        self._channel = StoreChannel(path)
        try:
            self._channel.call(Op.SUBSCRIBE, name=prefix.encode())
        except BaseException:
            self.close()
            raise

    def next(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event; None when there is none for so many seconds."""
        message = self._channel.next_event(timeout)
        if message is None:
            return None
        return Event(message.name, ObjectType(message.type), bool(message.flags & GONE))

    def __next__(self) -> Event:
        try:
            event = self.next()
        except DissociatedError as e:
            if e.code is Code.CANCELLED:
                raise StopIteration from None
            raise
        assert event is not None, "waits for ever"
        return event

    def close(self) -> None:
        """Ends the subscription. Idempotent."""
        self._channel.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
