"""Serving Arrow streams to processes of this host by shared memory, and to all by Flight."""

from ._server import Server, serve

__all__ = ["Server", "serve"]
