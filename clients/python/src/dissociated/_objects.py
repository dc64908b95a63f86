"""What a client does with objects of a store, which are found beside streams."""

from __future__ import annotations

import abc
from contextlib import AbstractContextManager
from typing import Any, Optional

from .errors import Code, DissociatedError
from .store import Store


class Objects(abc.ABC):
    """The everyday half of :class:`dissociated.store.Store`; the rest is behind :attr:`store`."""

    target: str
    _store: Optional[Store] = None
    _has_no_store = False

    @property
    @abc.abstractmethod
    def _is_socket(self) -> bool:
        """Whether this is connected to a socket, over which alone a store can be reached."""

    @property
    def store(self) -> Store:
        """The store behind this socket. Belongs to this client."""
        if self._store is None:
            if not self._is_socket:
                raise DissociatedError(
                    Code.UNSUPPORTED,
                    f"no store: connect to the path of a daemon's socket, target={self.target}",
                )
            self._store = Store(self.target)
        return self._store

    def put(self, name: str, obj: Any, **options: Any) -> None:
        """Puts an object, see :meth:`dissociated.store.Store.put`."""
        self.store.put(name, obj, **options)

    def put_tensor(self, name: str, tensor: Any, **options: Any) -> Any:
        """Puts a tensor, gives the shared one, see :meth:`dissociated.store.Store.put_tensor`."""
        return self.store.put_tensor(name, tensor, **options)

    def get_tensor(
        self, name: str, *, like: Optional[str] = None, timeout: Optional[float] = 0
    ) -> Any:
        """The tensor of that name, see :meth:`dissociated.store.Store.get_tensor`."""
        return self.store.get_tensor(name, like=like, timeout=timeout)

    def create(
        self, name: str, shape: Any, dtype: Any = "float64", **options: Any
    ) -> AbstractContextManager[Any]:
        """An array to be filled, see :meth:`dissociated.store.Store.create`."""
        return self.store.create(name, shape, dtype, **options)

    def delete(self, name: str) -> None:
        """Takes an object's name away; the memory goes with the last lease."""
        self.store.delete(name)

    def _object(self, name: str, timeout: Optional[float]) -> tuple[bool, Any]:
        """Whether there is an object of that name, and the object."""
        if not self._is_socket or self._has_no_store or name[:1] == "$":
            return False, None
        try:
            store = self.store
        except DissociatedError as e:
            # A server of streams alone; or none, of which opening the stream tells.
            self._has_no_store = e.code in (Code.UNSUPPORTED, Code.PROTOCOL_VIOLATION)
            return False, None
        try:
            return True, store.get(name, timeout=timeout)
        except DissociatedError as e:
            if e.code is not Code.NOT_FOUND:
                raise
            return False, None

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()
