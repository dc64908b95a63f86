"""``python -m dissociated get|serve|list|stat``: the words and the JSON of ``dissociated``."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, Optional

import pyarrow as pa
import pyarrow.flight as flight

from .client import Client, connect
from .errors import Code, DissociatedError
from .reader import Reader
from .server import serve

_SUFFIXES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs one command; gives the exit code: 0 success, 1 failure, 2 bad usage."""
    options = _parser().parse_args(arguments)
    level = logging.DEBUG if options.verbose else logging.WARNING
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(message)s")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        options.run(options)
        sys.stdout.flush()
        return 0
    except DissociatedError as e:
        text = " ".join(e.message.split())
        print(f"dissociated: {text} code={e.code.name}", file=sys.stderr)
        return 2 if e.code is Code.INVALID_ARGUMENT else 1
    except BrokenPipeError:
        # Whoever read the output has gone; Python would complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except _Terminated:
        return 0


class _Terminated(BaseException):
    """SIGTERM asks for an orderly end."""


def _terminate(_signal: int, _frame: Any) -> None:
    raise _Terminated


# ---- usage


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dissociated",
        description="Arrow record batches read in place from another process's memory.",
    )
    parser.add_argument("--verbose", action="store_true", help="say more, on stderr")
    commands = parser.add_subparsers(dest="command", required=True)

    get = commands.add_parser("get", help="read a stream")
    _add_target(get)
    get.add_argument("name", nargs="?", help="the stream's name")
    get.add_argument("--via", choices=("auto", "shm", "flight"), default="auto")
    get.add_argument("--metadata", choices=("flight", "inline"))
    get.add_argument(
        "--output",
        metavar="F.arrow",
        help="write an Arrow file, or a stream if the name ends in .arrows; - is stdout",
    )
    what = get.add_mutually_exclusive_group()
    # Not 'command', which names the subcommand.
    what.add_argument("--command", dest="descriptor", help="a command descriptor instead of a name")
    what.add_argument("--ticket", help="a ticket instead of a name")
    get.set_defaults(run=_get)

    server = commands.add_parser("serve", help="serve files")
    server.add_argument("files", nargs="*", metavar="NAME=FILE")
    server.add_argument("--flight", default="grpc://127.0.0.1:0", help="Flight URI to listen on")
    server.add_argument("--socket", help="path of the Unix socket")
    server.add_argument("--advertise", choices=("asked", "always"), default="asked")
    server.add_argument("--memory", type=_size, default=4 << 30, help="shared memory, like 4g")
    server.add_argument("--allow-uid", type=int, action="append", default=[])
    server.add_argument("--json", action="store_true", help="the listening line is always JSON")
    server.set_defaults(run=_serve)

    for name, run, text in (("list", _list, "list streams"), ("stat", _stat, "who holds leases")):
        command = commands.add_parser(name, help=text)
        _add_target(command)
        command.set_defaults(run=run)
        if name == "stat":
            command.add_argument("--watch", action="store_true", help="again every second")
    return parser


def _add_target(command: argparse.ArgumentParser) -> None:
    command.add_argument("target", help="a Flight URI or the path of a server's socket")
    command.add_argument("--header", action="append", default=[], metavar="K=V")
    command.add_argument("--token", help="bearer token")
    command.add_argument("--tls-root", metavar="PEM", help="file of certificates to trust")
    command.add_argument("--json", action="store_true", help="print JSON")


def _size(text: str) -> int:
    digits, factor = text, 1
    if text and text[-1].lower() in _SUFFIXES:
        digits, factor = text[:-1], _SUFFIXES[text[-1].lower()]
    if not digits.isdigit():
        raise argparse.ArgumentTypeError(f"not a size: {text}")
    return int(digits) * factor


def _connect(options: argparse.Namespace) -> Client:
    headers = {}
    for header in options.header:
        key, equals, value = header.partition("=")
        if not equals or not key:
            raise DissociatedError(Code.INVALID_ARGUMENT, f"not K=V: --header {header}")
        headers[key] = value
    return connect(
        options.target,
        via=getattr(options, "via", "auto"),
        metadata=getattr(options, "metadata", None),
        headers=headers,
        token=options.token,
        tls_root_certs=options.tls_root,
    )


# ---- get


def _get(options: argparse.Namespace) -> None:
    given = [x for x in (options.name, options.descriptor, options.ticket) if x is not None]
    if len(given) != 1:
        raise DissociatedError(Code.INVALID_ARGUMENT, "say one of NAME, --command or --ticket")
    with _connect(options) as client:
        what: Any = options.name
        if options.descriptor is not None:
            what = flight.FlightDescriptor.for_command(options.descriptor)
        elif options.ticket is not None:
            what = options.ticket.encode("utf-8")
        started = time.perf_counter()
        with client.open(what) as reader:
            if options.output is None:
                for _ in reader:
                    pass
            else:
                _write(reader, options.output)
            seconds = time.perf_counter() - started
            _report(given[0], reader, seconds, options)


def _write(reader: Reader, output: str) -> None:
    """Writes a file that appears only when it is whole."""
    if output == "-":
        sink = pa.PythonFile(sys.stdout.buffer, mode="w")
        with pa.ipc.new_stream(sink, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
        return
    partial = f"{output}.{os.getpid()}.part"
    try:
        try:
            create = pa.ipc.new_stream if output.endswith(".arrows") else pa.ipc.new_file
            with create(partial, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
            os.replace(partial, output)
        except OSError as e:
            raise DissociatedError(
                Code.UNAVAILABLE, f"cannot write: {e.strerror or e}, file={output}"
            ) from e
        except pa.ArrowInvalid as e:
            raise DissociatedError(Code.UNSUPPORTED, f"cannot write: {e}, file={output}") from e
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def _report(name: str, reader: Reader, seconds: float, options: argparse.Namespace) -> None:
    statistics = reader.statistics.as_dict()
    report = {
        "name": name,
        **statistics,
        "seconds": round(seconds, 6),
        "mb_per_s": round(statistics["bytes"] / 1e6 / seconds, 1) if seconds else 0.0,
    }
    # With the data on stdout the report would be in its way.
    out = sys.stderr if options.output == "-" else sys.stdout
    if options.json:
        print(json.dumps(report), file=out)
    else:
        print(
            "{name}: {batches} batches, {rows} rows, {bytes} bytes via {via} (metadata {metadata}, "
            "body types {body_types}) in {seconds} s".format(**report),
            file=out,
        )


# ---- serve, list, stat


def _serve(options: argparse.Namespace) -> None:
    streams: dict[str, Any] = {}
    for entry in options.files:
        name, equals, path = entry.partition("=")
        if not equals or not name or not path:
            raise DissociatedError(Code.INVALID_ARGUMENT, f"not NAME=FILE: {entry}")
        if not os.path.exists(path):
            raise DissociatedError(Code.NOT_FOUND, f"no such file, name={name} file={path}")
        streams[name] = path
    with serve(
        streams,
        flight=options.flight,
        socket=options.socket,
        memory=options.memory,
        advertise=options.advertise,
        allow_uids=options.allow_uid,
    ) as server:
        ready = {
            "event": "listening",
            "pid": os.getpid(),
            "flight": server.uri,
            "socket": server.socket,
            "transports": ["shm"],
        }
        print(json.dumps(ready), flush=True)
        server.wait()


def _list(options: argparse.Namespace) -> None:
    with _connect(options) as client:
        entries = client.list()
    if options.json:
        for entry in entries:
            print(json.dumps(entry))
        return
    for entry in entries:
        print(f"{entry['name']}\t{entry.get('rows', -1)}\t{entry.get('bytes', -1)}")


def _stat(options: argparse.Namespace) -> None:
    with _connect(options) as client:
        while True:
            statistics = client.stat()
            if options.json:
                print(json.dumps(statistics), flush=True)
            else:
                _print_statistics(statistics)
            if not options.watch:
                return
            time.sleep(1.0)


def _print_statistics(statistics: dict[str, Any]) -> None:
    for stream in statistics["streams"]:
        print(" ".join(f"{key}={value}" for key, value in stream.items()))
    for transport in statistics.get("transports", ()):
        print(" ".join(f"{key}={value}" for key, value in transport.items()))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
