"""The server of the tests: prints one JSON line when it is ready; SIGTERM ends it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import data
import pyarrow as pa

import dissociated
from dissociated.server._listener import HEARTBEAT_SECONDS

LEASE_LIMIT = 8 << 20


def again(table: pa.Table) -> Callable[[], pa.RecordBatchReader]:
    return lambda: pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches()))


def dictionaries() -> pa.RecordBatchReader:
    first = next(data.changing_dictionaries())
    return pa.RecordBatchReader.from_batches(first.schema, data.changing_dictionaries())


def failing_later() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"x": [1]})
        raise ValueError("the source broke")

    return pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())


def failing_at_once() -> Any:
    raise ValueError("the source cannot be opened")


def slow() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(100):
            yield pa.record_batch({"x": [i]})
            time.sleep(0.01)

    return pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())


def endless() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for i in itertools.count():
            yield pa.record_batch({"x": [i]})
            time.sleep(0.01)

    return pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())


def silent() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        time.sleep(HEARTBEAT_SECONDS * 1.5)
        yield pa.record_batch({"x": [1]})

    return pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())


def stuck(done: threading.Event) -> Callable[[], pa.RecordBatchReader]:
    def batches() -> Iterator[pa.RecordBatch]:
        done.wait()
        yield pa.record_batch({"x": [1]})

    return lambda: pa.RecordBatchReader.from_batches(pa.schema([("x", pa.int64())]), batches())


def streams(done: threading.Event) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, table in data.cases().items():
        found[name] = table
        found[f"live {name}"] = again(table)
    found["numbers"] = data.numbers()
    found["live numbers"] = again(data.numbers())
    found["large"] = again(data.numbers(batches=40, rows=50_000))
    found["dictionaries"] = dictionaries
    found["failing later"] = failing_later
    found["failing at once"] = failing_at_once
    found["slow"] = slow
    found["endless"] = endless
    found["silent"] = silent
    found["stuck"] = stuck(done)
    found["missing file"] = "/nonexistent/file.arrow"
    return found


def main() -> None:
    done = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    path = sys.argv[1] if len(sys.argv) > 1 else None
    with dissociated.serve(streams(done), socket=path, lease_limit=LEASE_LIMIT) as server:
        ready = {"flight": server.uri, "socket": server.socket, "pid": os.getpid()}
        print(json.dumps(ready), flush=True)
        done.wait()


if __name__ == "__main__":
    main()
