"""C++ Arrow Flight as a server, through pyarrow: no Python runs per batch while it sends."""

from __future__ import annotations

import json
import os
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

MIXED_ROW = 172


def make(kind: str, size: int) -> pa.RecordBatch:
    if kind == "int64":
        return pa.record_batch([pa.array(np.arange(max(1, size // 8)))], names=["l0"])
    if kind == "row":
        return pa.record_batch([pa.array([0])], names=["l0"])
    rows = 10_000 if kind == "small" else max(1, size // MIXED_ROW)
    numbers = np.arange(rows)
    if kind == "small":
        columns = [numbers, numbers + 1, numbers * 0.5, *[numbers.astype(np.int32)] * 2]
        return pa.record_batch([pa.array(c) for c in columns], names=list("abcde"))
    words = pa.array(["abcdefghijk" + chr(97 + i) for i in range(26)])
    columns = [pa.array(numbers + i) for i in range(6)]
    columns += [pa.array(numbers * 0.5)] * 4
    columns += [pa.array(numbers.astype(np.int32))] * 3
    columns += [pa.array(numbers).cast(pa.timestamp("us"))] * 2
    columns += [pa.array(numbers % 2 == 1)]
    columns += [words.take(pa.array(numbers % 26))] * 4
    return pa.record_batch(columns, names=[f"c{i}" for i in range(20)])


class Server(fl.FlightServerBase):
    data: dict[str, list[pa.RecordBatch]] = {}

    def batches(self, kind: str, size: int, distinct: int) -> list[pa.RecordBatch]:
        key = f"{kind}/{size}/{distinct}"
        if key not in self.data:
            first = make(kind, size)
            count = max(1, distinct // first.nbytes)
            self.data[key] = [first] + [make(kind, size) for _ in range(count - 1)]
        return self.data[key]

    def do_get(self, context, ticket):
        _, kind, size, total, distinct = ticket.ticket.decode().split("/")
        batches = self.batches(kind, int(size), int(distinct))
        count = -(-int(total) // batches[0].nbytes)
        repeated = (batches * -(-count // len(batches)))[:count]
        return fl.RecordBatchStream(pa.Table.from_batches(repeated))

    def do_exchange(self, context, descriptor, reader, writer):
        batch = make("row", 8)
        writer.begin(batch.schema)
        for _ in reader:
            writer.write_batch(batch)


def main() -> None:
    path = os.path.join(sys.argv[1], f"{os.getpid()}.grpc")
    tcp = Server("grpc://127.0.0.1:0")
    unix = Server(f"grpc+unix://{path}")
    for server in (tcp, unix):
        threading.Thread(target=server.serve, daemon=True).start()
    greeting = {"tcp": f"grpc://127.0.0.1:{tcp.port}", "unix": f"grpc+unix://{path}"}
    print(json.dumps({**greeting, "arrow": pa.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = {}
        if request["op"] == "prepare":
            _, kind, size, _, distinct = request["ticket"].split("/")
            tcp.batches(kind, int(size), int(distinct))
        else:
            answer = {"error": f"no such operation: {line}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)


main()
