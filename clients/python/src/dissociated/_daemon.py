"""A store's daemon as a child of this process, which ends with it however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from .errors import Code, DissociatedError

SOCKET_VARIABLE = "DISSOCIATED_SOCKET"
"""Names the socket of a daemon for :func:`connect` without a path, in child processes too."""

_LAUNCHER = "dissociated"
_START_SECONDS = 600.0  # the first start of a checkout builds the program
_STOP_SECONDS = 30.0
_MOST_OUTPUT = 64 << 10


class Daemon:
    """A running ``dissociated serve`` without Flight.

    It watches a pipe whose other end only this process has, and stops when that closes. It is not
    told of Ctrl-C, so that a script can still use it then.
    """

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        """Starts it and waits until it listens."""
        command = [_launcher(), "serve", "--exit-with-stdin", "--flight", "none", *arguments]
        with tempfile.TemporaryFile() as errors:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as e:
                raise _not_started(f"{e.strerror}, program={command[0]}") from e
            _daemons.add(self)
            try:
                self.socket: str = self._listening()
            except BaseException as e:
                self.close()
                if isinstance(e, DissociatedError):
                    raise _not_started(f"{e.message}{_last_line(errors)}") from None
                raise

    def _listening(self) -> str:
        assert self._process.stdout is not None
        descriptor, line = self._process.stdout.fileno(), b""
        deadline = time.monotonic() + _START_SECONDS
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while b"\n" not in line:
            left = deadline - time.monotonic()
            if left <= 0 or not poller.poll(left * 1000):
                raise DissociatedError(Code.TIMED_OUT, "it says nothing")
            part = os.read(descriptor, _MOST_OUTPUT)
            line += part
            if not part or len(line) > _MOST_OUTPUT:
                raise DissociatedError(Code.UNAVAILABLE, "it ended")
        try:
            socket: Any = json.loads(line)["socket"]
            assert isinstance(socket, str)
            return socket
        except (ValueError, LookupError, TypeError, AssertionError) as e:
            raise DissociatedError(Code.UNAVAILABLE, f"it says {line[:80]!r}") from e

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return self._process.pid

    def close(self) -> None:
        """Stops it and waits for its end. Idempotent."""
        self.let_go()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def let_go(self) -> None:
        """Closes this process's ends of its pipes."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _launcher() -> str:
    """The program that starts the daemon."""
    home = os.environ.get("DISSOCIATED_HOME")
    if home:
        named = os.path.join(home, _LAUNCHER)
        if os.access(named, os.X_OK):
            return named
        raise _not_started(f"no such program, DISSOCIATED_HOME={home}", Code.NOT_FOUND)
    on_path = shutil.which(_LAUNCHER)
    if on_path:
        return on_path
    folders = Path(__file__).resolve().parents
    checkout = folders[min(4, len(folders) - 1)]
    if (checkout / "clients" / "python").is_dir() and os.access(checkout / _LAUNCHER, os.X_OK):
        return str(checkout / _LAUNCHER)
    raise _not_started(
        f"no program {_LAUNCHER}: set DISSOCIATED_HOME to a checkout, or put it on the PATH",
        Code.NOT_FOUND,
    )


def _not_started(why: str, code: Code = Code.UNAVAILABLE) -> DissociatedError:
    return DissociatedError(code, f"daemon not started: {why}")


def _last_line(file: Any) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - _MOST_OUTPUT))
    lines = file.read().decode(errors="replace").split("\n")
    told = [line.strip() for line in lines if line.strip()]
    return f": {told[-1]}" if told else ""


# ---- the one of connect() without a path

_default: Optional[Daemon] = None
_default_lock = threading.Lock()
_daemons: weakref.WeakSet[Daemon] = weakref.WeakSet()


def default_socket() -> str:
    """The socket that the environment names, or that of a daemon which this process starts."""
    global _default
    with _default_lock:
        named = os.environ.get(SOCKET_VARIABLE)
        if named:
            return named
        _default = Daemon()
        os.environ[SOCKET_VARIABLE] = _default.socket
        return _default.socket


def _after_fork() -> None:
    """A child must not keep its parent's daemon alive, but may connect to it."""
    global _default, _default_lock
    for daemon in list(_daemons):
        daemon.let_go()
    _default, _default_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
